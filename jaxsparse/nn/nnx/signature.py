"""`inspect.signature` of a layer: flax's metaclass hides that of `__init__`."""

import inspect


class ConstructorSignature:
    """A class attribute `__signature__`: that of the class's `__init__`, without `self`.

    A subclass has that of its own `__init__`, an instance that of its `__call__`.
    """

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        if instance is not None:
            raise AttributeError("__signature__")
        _, *parameters = inspect.signature(owner.__init__).parameters.values()
        return inspect.Signature(parameters)
