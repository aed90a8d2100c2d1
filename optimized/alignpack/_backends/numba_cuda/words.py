"""Reading and writing one word of 1, 2, 4, 8 or 16 bytes, for the kernels and for Numba's simulator.

A kernel's source leaves the word's width open: `load`, `store` and `word` take it from the pointer's type. The compiler
makes 16-byte accesses only from a vector type whose alignment it is told.
"""

from typing import Any

from llvmlite import ir
from numba import config, types
from numba.cuda.extending import intrinsic

INT64 = types.CPointer(types.int64)

POINTERS = {
    16: types.CPointer(types.UniTuple(types.int64, 2)),
    8: INT64,
    4: types.CPointer(types.int32),
    2: types.CPointer(types.int16),
    1: types.CPointer(types.int8),
}
"""Pointers to words, by the bytes of the word. A word of 16 bytes is a pair of int64."""

SIMULATED = bool(config.ENABLE_CUDASIM)  # type: ignore[attr-defined]  # set when its module is read
"""Whether this process simulates CUDA; Numba reads that from the environment when it is imported."""

_PAIR = ir.VectorType(ir.IntType(64), 2)
_GLOBAL = 1  # the address space of global memory


def _address(context: Any, builder: Any, pointer: Any, word: Any, offset: Any) -> Any:
    element = _PAIR if isinstance(word, types.UniTuple) else context.get_value_type(word)
    pointer = builder.bitcast(pointer, element.as_pointer())
    return builder.gep(builder.addrspacecast(pointer, element.as_pointer(addrspace=_GLOBAL)), [offset])


def _load(_typing: Any, pointer: Any, _offset: Any) -> Any:
    """`load(pointer, offset)`: the word at that offset, counted in words, of memory that the kernel does not write."""
    word = pointer.dtype

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        loaded = builder.load(_address(context, builder, arguments[0], word, arguments[1]))
        loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
        if not isinstance(word, types.UniTuple):
            return loaded
        loaded.align = 16
        halves = [builder.extract_element(loaded, ir.Constant(ir.IntType(32), half)) for half in (0, 1)]
        return context.make_tuple(builder, word, halves)

    return word(pointer, types.int64), generate


def _store(_typing: Any, pointer: Any, _offset: Any, value: Any) -> Any:
    """`store(pointer, offset, value)`: write the word at that offset."""
    word = pointer.dtype

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, arguments[0], word, arguments[1])
        stored = arguments[2]
        if isinstance(word, types.UniTuple):
            pair = ir.Constant(_PAIR, ir.Undefined)
            for half in (0, 1):
                element = builder.extract_value(stored, half)
                pair = builder.insert_element(pair, element, ir.Constant(ir.IntType(32), half))
            builder.store(pair, address).align = 16
        else:
            builder.store(stored, address)
        return context.get_dummy_value()

    return types.void(pointer, types.int64, value), generate


def _word(_typing: Any, pointer: Any, _low: Any, _high: Any) -> Any:
    """`word(pointer, low, high)`: the first bytes of a 16-byte pattern, as a word of the pointer's width."""
    word = pointer.dtype

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        _, low, high = arguments
        if isinstance(word, types.UniTuple):
            return context.make_tuple(builder, word, (low, high))
        return low if word == types.int64 else builder.trunc(low, context.get_value_type(word))

    return word(pointer, types.int64, types.int64), generate


def _opaque(_typing: Any, value: Any) -> Any:
    """`opaque(value)`: the value, about which the compiler may assume nothing."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), [ir.IntType(64)])
        return builder.asm(kind, "mov.b64 $0, $1;", "=l,l", arguments, side_effect=True)

    return types.int64(value), generate


if SIMULATED:

    def load(pointer: Any, offset: int) -> Any:
        """`_load` in the simulator, whose pointers know their word."""
        return pointer.load(int(offset))

    def store(pointer: Any, offset: int, value: Any) -> None:
        """`_store` in the simulator."""
        pointer.store(int(offset), value)

    def word(pointer: Any, low: int, high: int) -> Any:
        """`_word` in the simulator."""
        return pointer.word(low, high)

    def opaque(value: int) -> int:
        """`_opaque` in the simulator."""
        return value

else:
    load, store, word, opaque = intrinsic(_load), intrinsic(_store), intrinsic(_word), intrinsic(_opaque)
