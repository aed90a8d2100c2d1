"""What the tests and the fuzz harness share: random inputs, implementations behind one interface, exact comparison."""
