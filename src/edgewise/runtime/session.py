"""Session: what long-running functions share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ..errors import InputError
from ..method import check_is
from .engine import IN_PROCESS, Engine
from .progress import Progress, ignore_progress, is_watched, progress_bars
from .store import NO_STORE, Store


@dataclass(frozen=True, eq=False)
class Session:
    """Where finished work is stored, where work runs, and what is called as it proceeds.

    Parameters
    ----------
    store
        Finished work, and finished parts of it. A stopped run with the same store resumes. The default stores nothing.
    engine
        Runs the model: this process by default, `Local()` for several processes, `Ray()` for a cluster.
    progress
        Called as `progress(stage, done, total)`. None shows bars in a terminal or a notebook (without ipywidgets,
        lines), and nothing elsewhere.
    """

    store: Store = NO_STORE
    engine: Engine = IN_PROCESS
    progress: Progress | None = None

    def __post_init__(self) -> None:
        check_is("store", Store, self.store)
        if not isinstance(self.engine, Engine):
            raise InputError(f"an engine such as Local() or Ray() is needed, not {self.engine!r}")

    def report(self, stage: str, done: int, total: int) -> None:
        """Call `progress`, if there is one."""
        (self.progress or ignore_progress)(stage, done, total)

    @contextmanager
    def reporting(self) -> Iterator[Session]:
        """Return this session with bars drawn until the end of the `with`, unless it has a `progress` already."""
        if self.progress is None and is_watched():
            with progress_bars() as bars:
                yield replace(self, progress=bars)
        else:
            yield replace(self, progress=self.progress or ignore_progress)

    def with_progress(self, progress: Progress) -> Session:
        """Return the same session with another `progress`."""
        return replace(self, progress=progress)

    def as_part(self, stage: str, before: int = 0, total: int | None = None) -> Session:
        """Return the same session for a part of a stage: reports name `stage`, and count after `before` of `total`."""
        return self.with_progress(lambda _, done, of_part: self.report(stage, before + done, total or of_part))


DEFAULT_SESSION = Session()
