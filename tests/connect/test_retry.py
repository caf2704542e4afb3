"""Retrying: policies are a table, and a wait never outlasts the work that it is part of."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import stamina
from hypothesis import given
from hypothesis import strategies as st

from ematix_flow.clock import Clock
from ematix_flow.connect.base import retry
from ematix_flow.connect.base.cancellation import Halt, unwatched
from ematix_flow.connect.base.retry import RetryPolicy, attempts
from ematix_flow.errors import OvertakenError, RunCancelledError, RunError, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable

SRC = Path(__file__).parents[2] / "src"
TABLE = {name: policy for name, policy in vars(retry).items() if isinstance(policy, RetryPolicy)}
UNTIL_STOPPED = {"STREAM_RESTART", "RUN_LOG_AWAY", "BROKER_AWAY"}
"""What is made again for as long as its process runs."""

HOURS = RetryPolicy(
    "a call that waits for hours", (TransientError,), attempts=3, first_wait=10_000.0, longest_wait=10_000.0
)

policies = st.builds(
    RetryPolicy,
    st.just("anything"),
    first_wait=st.floats(0, 100),
    factor=st.floats(1, 10),
    longest_wait=st.floats(0, 100),
    jitter=st.floats(0, 1),
)


class Flaky:
    """Fails with these errors, one after the other, and then gives how often it was called."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.calls


def called(work: Callable[[], int], policy: RetryPolicy, **how: object) -> int:
    for attempt in attempts(policy, **how):  # type: ignore[arg-type]
        with attempt:
            result = work()
    return result


def noted(waits: list[float]) -> Clock:
    return Clock(wait=lambda _, seconds: bool(waits.append(seconds)))  # type: ignore[func-returns-value]


@pytest.fixture(params=["stamina", "without stamina"])
def _either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the driver's attempts, and those of an executor that lacks the package."""
    if request.param == "without stamina":
        monkeypatch.setitem(sys.modules, "stamina", None)


either = pytest.mark.usefixtures("_either")


@pytest.mark.slow
@given(policies, st.integers(1, 5000))
def test_a_wait_stays_within_its_bounds_and_grows(policy: RetryPolicy, failures: int) -> None:
    most = replace(policy, jitter=0.0)
    upper = most.wait_after(failures)
    assert upper <= policy.longest_wait
    assert upper <= most.wait_after(failures + 1)
    assert upper * (1 - policy.jitter) <= policy.wait_after(failures) * (1 + 1e-9)
    assert policy.wait_after(failures) <= upper


@pytest.mark.slow
@given(st.integers(1, 12), st.integers(0, 15), st.booleans())
def test_a_call_is_made_as_often_as_the_policy_says(most: int, failing: int, executor: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if executor:
            patch.setitem(sys.modules, "stamina", None)
        _called_as_often_as_the_policy_allows(most, failing)


def _called_as_often_as_the_policy_allows(most: int, failing: int) -> None:
    policy = replace(retry.SCHEMA_REGISTRY, attempts=most, jitter=0.0)
    work, waits = Flaky(*(TransientError(str(number)) for number in range(failing))), list[float]()
    if failing < most:
        assert called(work, policy, clock=noted(waits)) == failing + 1
    else:
        with pytest.raises(TransientError, match=f"^{most - 1}$"):
            called(work, policy, clock=noted(waits))
    assert work.calls == min(most, failing + 1)
    assert waits == [policy.wait_after(number) for number in range(1, work.calls)]


@either
def test_what_does_not_pass_is_raised_at_once() -> None:
    for error in (RunError("wrong"), ValueError("wrong"), KeyboardInterrupt(), SystemExit(3)):
        work = Flaky(error)
        with pytest.raises(type(error)) as caught:
            called(work, HOURS)
        assert caught.value is error
        assert work.calls == 1


@either
def test_the_caller_may_judge_errors_that_only_it_understands() -> None:
    wait = {"clock": noted([]), "on": lambda error: "later" in str(error)}
    assert called(Flaky(OSError("later"), ValueError("later")), HOURS, **wait) == 3
    with pytest.raises(OSError, match="never"):
        called(Flaky(OSError("later"), OSError("never")), HOURS, **wait)
    assert called(Flaky(OSError("later")), HOURS, clock=noted([]), on=(OSError,)) == 2


@pytest.mark.slow
@either
def test_time_that_is_over_ends_the_attempts_and_no_time_is_one_attempt() -> None:
    for seconds in (0.0, 0.5):
        work = Flaky(*[TransientError("away")] * 10_000)
        with pytest.raises(TransientError, match="away"):
            called(work, replace(HOURS, attempts=None, seconds=seconds, first_wait=0.2, longest_wait=0.2))
        assert 1 <= work.calls <= (4 if seconds else 1)


@either
def test_a_stop_ends_a_wait_with_the_error_that_was_waited_for() -> None:
    stop, reports = threading.Event(), list[tuple[str, float]]()

    def hear(error: Exception, seconds: float) -> None:
        reports.append((str(error), seconds))
        threading.Timer(0.01, stop.set).start()

    with pytest.raises(TransientError, match="away"):
        called(Flaky(TransientError("away")), HOURS, stop=stop, waiting=hear)
    assert reports == [("away", 10_000.0)]


@either
def test_a_cancelled_run_does_not_wait_out_its_retries() -> None:
    """In a thread, where no signal arrives."""
    halt, ended = Halt(), list[BaseException]()
    work = Flaky(*[TransientError("away")] * 3)

    def run() -> None:
        with halt.over():
            try:
                called(work, HOURS, waiting=lambda *_: threading.Timer(0.01, halt.stop, [cancel]).start())
            except RunCancelledError as error:
                ended.append(error)

    cancel = RunCancelledError("cancelled by Ada")
    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert ended == [cancel]
    assert work.calls == 1


@either
def test_a_run_that_is_stopped_already_makes_no_second_attempt_unless_it_has_to_know() -> None:
    halt, work = Halt(), Flaky(TransientError("away"))
    with halt.over():
        halt.stop(RunCancelledError("cancelled"))
        with pytest.raises(RunCancelledError):
            called(work, replace(HOURS, first_wait=0.0))
        assert work.calls == 1
        with unwatched():
            assert called(Flaky(TransientError("away")), replace(HOURS, first_wait=0.0)) == 2


def test_nothing_is_cut_short_in_a_commit() -> None:
    halt, waits = Halt(), list[float]()
    with halt.over(), halt.committing():
        halt.stop(RunCancelledError("too late"))
        assert called(Flaky(TransientError("away")), HOURS, clock=noted(waits)) == 2
    assert waits == [10_000.0]


INTERRUPTED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell has put into the background
sys.path.insert(0, {src!r})
from ematix_flow.connect.base.retry import RetryPolicy, attempts
policy = RetryPolicy("a call", (OSError,), attempts=3, first_wait=10_000.0, longest_wait=10_000.0)
for attempt in attempts(policy, waiting=lambda *_: print("waiting", flush=True)):
    with attempt:
        raise OSError("postgresql://ada:canary-secret@db/shop is away")
"""


@pytest.mark.slow
def test_ctrl_c_ends_a_wait_and_stamina_says_nothing() -> None:
    command = [sys.executable, "-c", INTERRUPTED.format(src=str(SRC))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert "stamina" not in errors.partition("Traceback")[0]
    assert "canary-secret" not in errors


def test_hooks_of_the_users_own_retries_stay_theirs() -> None:
    heard: list[str] = []
    hooks = stamina.instrumentation.get_on_retry_hooks()
    retry._leave_ours_out.cache_clear()
    try:
        stamina.instrumentation.set_on_retry_hooks([lambda details: heard.append(str(details.caused_by))])  # type: ignore[list-item,func-returns-value]
        assert called(Flaky(TransientError("ours")), replace(HOURS, first_wait=0.0)) == 2
        for attempt in stamina.retry_context(OSError, wait_initial=0, wait_jitter=0):
            with attempt:
                if attempt.num == 1:
                    raise OSError("theirs")
    finally:
        stamina.instrumentation.set_on_retry_hooks(hooks)
        retry._leave_ours_out.cache_clear()
    assert heard == ["theirs"]


def test_every_policy_says_what_it_is_for_and_has_an_end() -> None:
    assert len(TABLE) > 15
    assert len({policy.what for policy in TABLE.values()}) == len(TABLE)
    for name, policy in TABLE.items():
        ends = policy.attempts is not None or policy.seconds is not None
        assert ends != (name in UNTIL_STOPPED), name
        assert policy.attempts is None or policy.attempts > 1
        assert 0 <= policy.jitter <= 1


@pytest.mark.slow
def test_every_policy_is_used_and_nothing_else_retries_with_stamina() -> None:
    modules = {path: path.read_text("utf-8") for path in SRC.rglob("*.py") if path.name != "retry.py"}
    imported = {
        alias.name
        for text in modules.values()
        if "connect.base.retry" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module == "ematix_flow.connect.base.retry"
        for alias in node.names
    }
    assert imported - {"attempts", "RetryPolicy"} == set(TABLE)
    assert not [path for path, text in modules.items() if "stamina" in text or "tenacity" in text]


BY_HAND = {
    "Receiver._run": "reconnects for ever, from the first wait on after every success; its waits are of the table",
    "_followed": "restarts a stream for ever, likewise",
    "LookupRows._refresh": "reads rows again every so often, whether the last time failed or not",
    "_watch": "looks every so often",
    "repeated": "requests to buckets, which may be part of a commit; its numbers are of the table",
}


@pytest.mark.slow
def test_no_other_loop_waits_after_a_failure() -> None:
    waiting = {
        name for path in SRC.rglob("*.py") for name in _waiting_after_failures(ast.parse(path.read_text("utf-8")))
    }
    assert not waiting - set(BY_HAND)


def _waiting_after_failures(tree: ast.AST, within: str = "") -> set[str]:
    """Return the functions with a loop that both catches errors and sleeps."""
    names: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        named = isinstance(node, ast.ClassDef | ast.FunctionDef)
        name = f"{within}.{node.name}".lstrip(".") if named else within
        if isinstance(node, ast.For | ast.While):
            inside = list(ast.walk(node))
            calls = {ast.unparse(one.func).rpartition(".")[2] for one in inside if isinstance(one, ast.Call)}
            if calls & {"sleep", "wait", "pause"} and any(isinstance(one, ast.ExceptHandler) for one in inside):
                names.add(name)
        names |= _waiting_after_failures(node, name)
    return names


def test_a_call_that_succeeds_does_without_stamina() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(SRC)!r}); from ematix_flow.connect.base.retry import COMMIT, attempts\n"
        "for attempt in attempts(COMMIT):\n    with attempt:\n        print(1)\n"
        "print('stamina' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "1\nFalse\n"


@either
def test_another_writer_that_commits_first_is_no_failure() -> None:
    assert called(Flaky(*[OvertakenError("later")] * 5), retry.OVERTAKEN, clock=noted([])) == 6
