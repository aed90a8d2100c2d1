"""Integer arguments: what is no integer or too small is refused by its name."""

import operator

from alignpack_reference import errors


def integer(name: str, value: int) -> int:
    """The value as an int, which bool is not."""
    try:
        plain = operator.index(value)
    except TypeError:
        raise errors.not_an_integer(name, value) from None
    if isinstance(value, bool):
        raise errors.not_an_integer(name, value)
    return plain


def at_least(name: str, value: int, minimum: int) -> int:
    """The value as an int that is not below the minimum."""
    plain = integer(name, value)
    if plain < minimum:
        raise errors.too_small(name, plain, minimum)
    return plain
