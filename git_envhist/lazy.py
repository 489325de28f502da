"""Dataclasses, cached properties and patterns that cost nothing before their first use.

`dataclasses` compiles about six functions per class at import and loads `inspect`: 16 of the 60 ms that `git envlog`
may take. Here a class is created without compiling: its `__init__` is compiled for the first instance, the other
methods are shared, and the attributes that `fields`, `replace` and `asdict` read are computed on request.
tests/test_lazy.py compares every class of the package with the standard library's.

`once` is `functools.cached_property` without its lock, which is shared by all instances: a process that is forked
while another thread holds it would wait for ever. Python 3.12 removed it as well.

`pattern` is `re.compile` at first use.

A type checker sees the standard library's names. Supported is what is used here: fields with a default or a factory,
no base class, `slots=True`.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from dataclasses import dataclass, field, replace
    from functools import cached_property as once
    from re import compile as pattern

__all__ = ["dataclass", "field", "once", "pattern", "replace"]

C = TypeVar("C", bound=type)

MISSING: Any = object()


class _CachedProperty:
    """A property computed at first use; two threads may both compute it."""

    def __init__(self, compute: Callable[[Any], Any]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        found = instance.__dict__.get(self._name, MISSING)
        if found is MISSING:
            found = instance.__dict__[self._name] = self._compute(instance)
        return found


class _Pattern:
    """A pattern compiled at first use, with the methods of a compiled one."""

    def __init__(self, text: str | bytes, flags: int = 0) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        import re  # loaded late: only a pattern that is used needs it

        compiled = re.compile(self._text, self._flags)
        methods = ("findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn")
        self.__dict__.update({method: getattr(compiled, method) for method in methods})
        return getattr(compiled, name)


class _Field:
    """The options of one field besides its type."""

    __slots__ = ("compared", "default", "factory", "shown")

    def __init__(self, default: Any, factory: Any, shown: bool, compared: bool) -> None:
        self.default = default
        self.factory = factory
        self.shown = shown
        self.compared = compared


class _StandardAttribute:
    """A class attribute read from the standard library's version of the class, on request."""

    __slots__ = ("_make", "_read")

    def __init__(self, make: Callable[[], type], read: Callable[[type], Any]) -> None:
        self._make = make
        self._read = read

    def __get__(self, instance: object, owner: type) -> Any:
        return self._read(self._make())


def _field(
    *,
    default: Any = MISSING,
    default_factory: Any = MISSING,
    repr: bool = True,  # noqa: A002 - as the standard library calls it
    compare: bool = True,
) -> Any:
    """Return a field with options."""
    return _Field(default, default_factory, repr, compare)


def _dataclass(*, frozen: bool = False, slots: bool, eq: bool = True) -> Callable[[C], C]:
    """Return the decorator; `slots` must be true."""
    if not slots:
        raise TypeError("without slots use the standard library's dataclass")
    return lambda plain: _make(plain, frozen, eq)


def _replace(value: Any, /, **changes: Any) -> Any:
    """Return a copy with other values in some fields."""
    kind = type(value)
    for name in kind.__slots__:
        if name not in changes:
            changes[name] = getattr(value, name)
    return kind(**changes)


def _make(plain: C, frozen: bool, eq: bool) -> C:
    if plain.__bases__ != (object,):
        raise TypeError(f"{plain.__name__} has a base class: use the standard library's dataclass")
    fields = {name: _described(vars(plain).get(name, MISSING)) for name in plain.__annotations__}
    outer = {
        key: value for key, value in vars(plain).items() if key not in ("__dict__", "__weakref__", *fields)
    }
    methods = _methods(fields, frozen, eq)
    body = {**methods, **outer, "__slots__": tuple(fields), "__match_args__": tuple(fields)}
    if eq and not frozen:
        body["__hash__"] = None
    made: Any = type(plain)(plain.__name__, (), body)
    made.__qualname__ = plain.__qualname__
    made.__init__ = _late_init(made, fields, frozen)
    _add_standard_attributes(made, plain, fields, {"frozen": frozen, "eq": eq})
    return cast(C, made)


def _described(default: Any) -> _Field:
    return default if isinstance(default, _Field) else _Field(default, MISSING, True, True)


def _methods(fields: dict[str, _Field], frozen: bool, eq: bool) -> dict[str, Any]:
    methods: dict[str, Any] = {"__repr__": _repr_of([name for name, field in fields.items() if field.shown])}
    if eq:
        values = _values_of([name for name, field in fields.items() if field.compared])
        methods["__eq__"] = lambda self, other: (
            values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented
        )
        if frozen:
            methods["__hash__"] = lambda self: hash(values(self))
    if frozen:
        methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
        methods |= {"__getstate__": _get_state, "__setstate__": _set_state}
    return methods


def _values_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple([getattr(value, name) for name in names])


def _repr_of(names: list[str]) -> Callable[[Any], str]:
    def show(self: Any) -> str:
        values = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{type(self).__qualname__}({values})"

    return show


def _late_init(made: Any, fields: dict[str, _Field], frozen: bool) -> Callable[..., None]:
    def first(self: Any, *arguments: Any, **named: Any) -> None:
        made.__init__ = init = _write_init(made, fields, frozen)
        init(self, *arguments, **named)

    return first


def _write_init(made: Any, fields: dict[str, _Field], frozen: bool) -> Any:
    scope: dict[str, Any] = {"MISSING": MISSING}
    parameters, lines = ["self"], []
    for name, field in fields.items():
        value = name
        if field.factory is not MISSING:
            scope[f"_make_{name}"] = field.factory
            parameters.append(f"{name}=MISSING")
            value = f"_make_{name}() if {name} is MISSING else {name}"
        elif field.default is not MISSING:
            scope[f"_default_{name}"] = field.default
            parameters.append(f"{name}=_default_{name}")
        else:
            parameters.append(name)
        # `__setattr__` refuses; the slot's own descriptor sets the value.
        scope[f"_set_{name}"] = vars(made)[name].__set__
        lines.append(f" _set_{name}(self, {value})" if frozen else f" self.{name} = {value}")
    exec(f"def __init__({', '.join(parameters)}):\n" + ("\n".join(lines) or " pass"), scope)
    init = scope["__init__"]
    init.__qualname__ = f"{made.__qualname__}.__init__"
    return init


def _add_standard_attributes(
    made: Any, plain: Any, fields: dict[str, _Field], options: dict[str, bool]
) -> None:
    known: list[type] = []

    def standard() -> type:
        if not known:
            known.append(_standard(plain, fields, options))
        return known[0]

    for name in ("__dataclass_fields__", "__dataclass_params__"):
        setattr(made, name, _StandardAttribute(standard, attrgetter(name)))
    made.__signature__ = _StandardAttribute(standard, _signature)


def _standard(plain: Any, fields: dict[str, _Field], options: dict[str, bool]) -> type:
    import dataclasses  # loaded late: slow, and avoiding it is the purpose of this module

    for name, field in fields.items():
        words = {"default": field.default, "default_factory": field.factory}
        given = {word: value for word, value in words.items() if value is not MISSING}
        setattr(plain, name, dataclasses.field(repr=field.shown, compare=field.compared, **given))
    made: type = dataclasses.dataclass(slots=True, **options)(plain)
    return made


def _signature(standard: type) -> object:
    import inspect  # loaded late: slow

    return inspect.signature(standard)


def _refuse_to_set(self: object, name: str, value: object) -> None:
    raise _frozen(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    raise _frozen(f"cannot delete field {name!r}")


def _frozen(text: str) -> AttributeError:
    from dataclasses import FrozenInstanceError  # loaded late: slow

    return FrozenInstanceError(text)


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self.__slots__]


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(self.__slots__, state, strict=True):
        object.__setattr__(self, name, value)


if not TYPE_CHECKING:
    dataclass, field, once, pattern, replace = _dataclass, _field, _CachedProperty, _Pattern, _replace
