"""Integer arguments, checked: errors name the argument."""

import operator

from alignpack_reference import errors


def integer(name: str, value: int) -> int:
    """The value as an int; a bool is refused."""
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
