"""What goes wrong, in words: every error that a user can cause is a `ValueError` that says what to do."""


class InputError(ValueError):
    """Something that was given can't be used. The message says what was given, what was expected, what to do.

    The command line prints it as one line and exits with code 2.
    """


def unknown_name(kind: str, name: str, known: "list[str] | tuple[str, ...]") -> InputError:
    """The error for a `name` that isn't among the `known` ones: it lists the choices."""
    return InputError(f"unknown {kind} {name!r}; choose one of: {', '.join(known)}")
