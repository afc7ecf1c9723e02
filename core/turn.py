"""One turn: from messages that wait to a finished answer, with tools in between.

Knows no store and no platform: what must survive goes through the Journal, what may be shown
through `show`. It retries the model, bounds the time, and ends with an answer that can be said, or
with an error of `core.errors` that says whose fault it is.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from core import approvals, delegation, history, phrases
from core.adapter import CallState
from core.agent import Agent
from core.clock import Clock
from core.doing import Progress, Tell
from core.errors import (
    BudgetReached,
    ModelError,
    ModelNotFound,
    ModelRefusedKey,
    ModelRejected,
    ModelUnavailable,
    ToolError,
)
from core.events import emit, said, trouble
from core.execution import Execution
from core.failpoints import failpoint
from core.messages import Message, encode_blocks, text_block, text_of
from core.model import Answer, ModelClient, Request, ToolCall
from core.phrases import ENGLISH, Wording
from core.registry import Registry
from core.requested import Blobbed
from core.results import Keep
from core.snapshot import Suspension, Usage
from core.store import Blobs
from core.tools import ToolContext, tool_json
from core.window import bytes_per_token

ATTEMPTS: Final = 3
RETRY_WAIT: Final = 1.0
MAX_RETRY_WAIT: Final = 5.0
MAX_PAUSES: Final = 8

CUT_SHORT: Final = " …\n\n[The answer was cut here because it grew too long.]"
NO_ANSWER: Final = "I have no answer to that. Please try to put it differently."
REFUSAL: Final = "I cannot help with that."
NO_TOOL: Final = tool_json("none", "There are no tools any more.", {"type": "object"})

Show = Callable[[str], bool]
Approve = Callable[[ToolCall], Awaitable[bool]]


class Journal(Protocol):
    """What survives of a turn under way. Each call is durable when it returns.

    :raises Fenced: this turn is no longer the one
    """

    async def answered(self, blocks: Sequence[msgspec.Raw], started: tuple[str, ...]) -> None:
        """Assistant messages, the last of which calls tools; those in `started` run next. No
        messages: of an answer that is in the journal already, these run next."""
        ...

    async def results(self, blocks: msgspec.Raw) -> None: ...


class Finished(msgspec.Struct, frozen=True):
    """
    :param blocks: the assistant messages that the journal does not have yet
    :param text: what the person is told, in markdown
    :param outcome: ``answered``, ``cut``, ``refused``, ``empty`` or ``unpaid``: a budget was used
        up on the way
    :param window: the seq from which the messages were sent, when not all could be
    :param bytes_per_token: of the last request, when it is to be known
    """

    blocks: tuple[msgspec.Raw, ...]
    text: str
    usage: Usage
    outcome: str
    window: int | None = None
    bytes_per_token: float | None = None


class Suspended(msgspec.Struct, frozen=True):
    """People must decide before the turn can go on: nothing runs until then.

    :param step: a JSON array of what the calls that needed nobody gave
    :param calls: those that wait, in order
    :param expires: until when; milliseconds since 1970, UTC
    """

    step: msgspec.Raw
    calls: tuple[ToolCall, ...]
    expires: int
    usage: Usage


class Place(msgspec.Struct, frozen=True):
    """Where the turn belongs: for tools and events."""

    session_key: str
    execution: str
    sender: str | None = None


async def run_turn(
    agent: Agent,
    client: ModelClient,
    messages: Sequence[Message],
    steps: Sequence[Message],
    journal: Journal,
    show: Show | None = None,
    *,
    started: tuple[str, ...] = (),
    configured: str | None = None,
    suspended: Suspension | None = None,
    joining: Sequence[history.Block] = (),
    approve: Approve | None = None,
    doing: Tell | None = None,
    place: Place,
    clock: Clock,
    blobs: Blobs | None = None,
    say: Wording = ENGLISH,
    chance: Callable[[], float] = random.random,
) -> Finished | Suspended:
    """
    :param messages: the history in its window
    :param steps: the turn's own messages so far: at first what the person said
    :param started: calls of the last step that were about to run when an earlier attempt ended
    :param configured: the model that answers when the agent's own, which a chat chose, is gone
    :param suspended: what became of the last step since it asked for an approval
    :param joining: what people have said instead of deciding: the step goes on with it
    :param approve: asked at once whether a call may run, so that nothing is ever suspended; its
        ToolError says why not. Its time does not count as the turn's
    :param doing: told how the calls of tools stand, each time that changes
    :param blobs: where what the messages name is found, and what tools give is kept
    :param say: how the bot words what it says itself
    :raises Fenced: from the journal
    :raises ModelRejected: the service refuses what was said in this turn, without any history
    :raises ModelError: no answer could be had
    :raises BudgetReached: not even the first call could be paid
    :raises StoreError: from `blobs`
    """
    execution = Execution(agent)
    run = _Run(
        agent,
        client,
        tuple(messages),
        list(steps),
        journal,
        show,
        configured,
        place,
        clock,
        chance,
        execution,
        blobs,
        say,
    )
    run.progress = Progress(doing)
    try:
        async with asyncio.timeout(agent.turn_timeout) as limit:
            run.approve = approve and _beside(limit, approve)
            return await run.finish(started, suspended, joining)
    except TimeoutError as error:
        if limit.expired():
            raise ModelUnavailable(f"no answer within {agent.turn_timeout:g} s") from error
        raise


class _Run:
    """The mutable part of a turn: what was said in it so far."""

    def __init__(
        self,
        agent: Agent,
        client: ModelClient,
        messages: tuple[Message, ...],
        steps: list[Message],
        journal: Journal,
        show: Show | None,
        configured: str | None,
        place: Place,
        clock: Clock,
        chance: Callable[[], float],
        execution: Execution,
        blobs: Blobs | None,
        say: Wording,
    ) -> None:
        self._agent = agent
        self._client = client
        self._messages = messages
        self._steps = steps
        self._journal = journal
        self._show = show
        self._configured = configured
        self._tried: set[str] = set()
        self._place = place
        self._clock = clock
        self._chance = chance
        self._execution = execution
        self._blobs = blobs
        self._say = say
        self._blobbed = Blobbed(blobs, place.session_key)
        self._tools = Registry(
            execution.tools(agent, self._delegate),
            _called(steps),
            _keeping(blobs, place.session_key),
        )
        self._container: str | None = None
        self._usage = Usage()
        self._window: int | None = None
        self._bytes_per_token: float | None = None
        self._before = _preamble(steps)
        self._so_far = ""
        self._has_words = False
        self._first_text: float | None = None
        self._visible = False
        self._unjournaled: list[msgspec.Raw] = []
        self.approve: Approve | None = None
        # Of another agent that is asked, only that it is asked is told.
        self.progress = Progress()

    async def finish(
        self,
        started: tuple[str, ...],
        suspended: Suspension | None,
        joining: Sequence[history.Block],
    ) -> Finished | Suspended:
        if asking := await self._resume(started, suspended, joining):
            return asking
        try:
            return await self._answered()
        except BudgetReached as error:
            if not _has_answers(self._steps):
                raise
            # Tools have run: that is history, with an honest end.
            sentence = phrases.budget_reached(error, self._say, midway=True)
            return self._fixed(sentence, "unpaid", after=self._before.rstrip())

    async def _answered(self) -> Finished | Suspended:
        pauses = empties = 0
        while True:
            rounds = sum(1 for step in self._steps if history.calls(step))
            may_use_tools = rounds < self._agent.max_rounds
            answer = await self._ask(use_tools=may_use_tools)
            if answer.stop_reason == "refusal":
                # What it had said until then shall not be used.
                return self._fixed(REFUSAL, "refused")
            if answer.calls and answer.stop_reason == "tool_use" and may_use_tools:
                if asking := await self._use_tools(answer):
                    return asking
                continue
            if answer.stop_reason == "pause_turn" and pauses < MAX_PAUSES:
                pauses += 1
                self._before = self._joined(answer.text)
                self._add_answer(answer.blocks)
                continue
            if not answer.text.strip():
                if empties == 0 and answer.stop_reason not in _CUT:
                    empties += 1
                    continue
                return self._fixed(NO_ANSWER, "empty", after=self._before.rstrip())
            return self._said(answer)

    def _said(self, answer: Answer) -> Finished:
        blocks = answer.blocks
        if answer.calls:
            # The answer was cut in the middle of a call, or calls what must not be called any
            # more: nobody will run that, and a history cannot hold it. What was said stays.
            blocks = encode_blocks([text_block(answer.text)])
        cut = answer.stop_reason in _CUT
        text = self._joined(answer.text).strip()
        return Finished(
            blocks=(*self._unjournaled, blocks),
            text=text + CUT_SHORT if cut else text,
            usage=self._usage,
            outcome="cut" if cut else "answered",
            window=self._window,
            bytes_per_token=self._bytes_per_token,
        )

    def _fixed(self, sentence: str, outcome: str, *, after: str = "") -> Finished:
        """A fixed sentence takes the place of an answer.

        :param after: what was said before, and stays
        """
        kept = self._unjournaled if after else []
        return Finished(
            blocks=(*kept, encode_blocks([text_block(sentence)])),
            text=f"{after}\n\n{sentence}" if after else sentence,
            usage=self._usage,
            outcome=outcome,
            window=self._window,
            bytes_per_token=self._bytes_per_token,
        )

    def _add(self, role: str, blocks: msgspec.Raw) -> None:
        self._steps.append(
            Message(
                seq=self._steps[-1].seq + 1,
                role="assistant" if role == "assistant" else "user",
                blocks=blocks,
                at=0,
            )
        )

    def _add_answer(self, blocks: msgspec.Raw) -> None:
        self._unjournaled.append(blocks)
        self._add("assistant", blocks)

    # ------------------------------------------------------------------ the model

    async def _ask(self, *, use_tools: bool) -> Answer:
        """An answer, from another model when the first has none."""
        # What was said before stays: only this answer must not be begun anew before one's eyes.
        self._visible = False
        while True:
            try:
                return await self._ask_one(use_tools)
            except (ModelUnavailable, ModelRefusedKey, ModelNotFound) as error:
                other = self._next_model(error)
                if other is None or self._visible:
                    raise
                trouble(
                    "model.replaced",
                    self._place.session_key,
                    execution=self._place.execution,
                    model=self._agent.model,
                    by=other,
                    error=str(error),
                )
                self._agent = replace(self._agent, model=other)

    def _next_model(self, error: ModelError) -> str | None:
        """One that was not tried in this turn; the configured one when only the chosen is gone."""
        self._tried.add(self._agent.model)
        gone = isinstance(error, ModelNotFound)
        for other in (self._configured if gone else None, self._agent.fallback):
            if other is not None and other not in self._tried:
                return other
        return None

    async def _ask_one(self, use_tools: bool) -> Answer:
        """After retries, and on a shorter history when the whole is refused."""
        while True:
            try:
                return await self._persist(use_tools)
            except ModelRejected as error:
                if not self._messages:
                    raise
                trouble(
                    "model.rejected",
                    self._place.session_key,
                    execution=self._place.execution,
                    messages=len(self._messages),
                    error=str(error),
                )
                # First to the last exchange; then it shows whether this turn alone is to blame.
                beginnings = list(history.exchanges(self._messages))
                last = beginnings[-1] if len(beginnings) > 1 else len(self._messages)
                self._messages = self._messages[last:]
                first = (*self._messages, *self._steps)[0]
                self._window = first.seq

    async def _persist(self, use_tools: bool) -> Answer:
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._attempt(use_tools)
            except ModelUnavailable as error:
                wait = error.retry_after or RETRY_WAIT * 2 ** (attempt - 1)
                # A wait that somebody sits in front of is short; a service that asks for more
                # gets an apology now rather than an answer in an hour.
                if self._visible or attempt == ATTEMPTS or wait > MAX_RETRY_WAIT:
                    raise
                emit(
                    "model.again",
                    self._place.session_key,
                    execution=self._place.execution,
                    attempt=attempt,
                    error=str(error),
                )
                await self._clock.sleep(wait + self._chance() * RETRY_WAIT / 4)

    async def _attempt(self, use_tools: bool) -> Answer:
        self._so_far = ""
        self._has_words = False
        self._first_text = None
        request = await self._request(use_tools)
        asked = self._clock.monotonic()
        failpoint("before_model")
        try:
            answer = await self._client.answer(request, self._on_text)
        except ModelError as error:
            self._usage += error.usage or Usage()
            raise
        failpoint("answered")
        self._container = answer.container or self._container
        self._usage += answer.usage
        if self._agent.memory.bounds.tokens is not None:
            self._bytes_per_token = bytes_per_token(request, answer.usage)
        said(self._place.execution, request.messages, answer.blocks)
        emit(
            "answered",
            self._place.session_key,
            execution=self._place.execution,
            agent=self._agent.name,
            model=self._agent.model,
            ms=round((self._clock.monotonic() - asked) * 1000, 1),
            first_ms=self._first_text and round((self._first_text - asked) * 1000, 1),
            stop=answer.stop_reason,
            calls=len(answer.calls),
            input=answer.usage.input_tokens,
            cached=answer.usage.cache_read_input_tokens,
            cache_written=answer.usage.cache_creation_input_tokens,
            output=answer.usage.output_tokens,
        )
        return answer

    async def _request(self, use_tools: bool) -> Request:
        agent = self._agent
        messages: Sequence[Message] = (*self._messages, *self._steps)
        tools = self._tools.json
        # Looked through once, not once for each of these: it is done for every request.
        if not history.is_only_text(messages):
            messages = await self._blobbed.fill_in(history.repair(messages))
            if not tools and history.used_tools(messages):
                # A history with calls in it is refused where no tool is defined.
                tools, use_tools = (NO_TOOL,), False
        return Request(
            provider=agent.provider,
            model=agent.model_name,
            system=tuple([text for text in (agent.instructions, *agent.memory.system) if text]),
            messages=messages,
            tools=tools,
            use_tools=use_tools,
            max_tokens=agent.max_tokens,
            thinking=agent.thinking,
            effort=agent.effort,
            container=self._container,
            compact_at=agent.memory.compact_at if agent.memory.strategy == "server" else None,
        )

    def _on_text(self, piece: str) -> None:
        if self._first_text is None:
            self._first_text = self._clock.monotonic()
        self._so_far += piece
        if not self._has_words:
            # Looked for in the new piece alone: a long answer has a thousand of them.
            if not piece.strip():
                return
            self._has_words = True
            self._so_far = self._joined(self._so_far)
        if self._show and self._show(self._so_far):
            self._visible = True

    def _joined(self, text: str) -> str:
        """All that was said, with this after it: a paragraph of its own after a tool's result."""
        if not self._before:
            return text.lstrip()
        return self._before + (text.lstrip() if self._before.endswith("\n\n") else text)

    # ------------------------------------------------------------------ tools

    async def _use_tools(self, answer: Answer) -> Suspended | None:
        if answer.text.strip():
            self._before = self._joined(answer.text).rstrip() + "\n\n"
        self._add_answer(answer.blocks)
        asking = self._asking(answer.calls)
        await self._journal.answered(
            tuple(self._unjournaled), tuple(call.id for call in answer.calls if call not in asking)
        )
        self._unjournaled.clear()
        return await self._run_calls(answer.calls, asking, {})

    def _asking(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """Those that a person must allow first."""
        return [call for call in calls if approvals.needed(self._tools.get(call.name), call)]

    async def _run_calls(
        self,
        calls: Sequence[ToolCall],
        asking: Sequence[ToolCall],
        known: dict[str, history.Block],
        joining: Sequence[history.Block] = (),
        sender: str | None = None,
    ) -> Suspended | None:
        """Those that need nobody first; the results in the order of the calls.

        :param asking: which of them a person must allow
        :param known: results that are there already
        """
        self.progress.add(
            (call, self._tools.get(call.name), _state(known.get(call.id), call in asking))
            for call in calls
        )
        known = known | await self._gave(
            [call for call in calls if call not in asking and call.id not in known], sender
        )
        if asking and self.approve is not None:
            declined = await self._declined(asking, self.approve)
            allowed = [call for call in asking if call.id not in declined]
            self.progress.note("failed", *declined)
            if allowed:
                self.progress.note("running", *(call.id for call in allowed))
                await self._journal.answered((), tuple(call.id for call in allowed))
                known = known | await self._gave(allowed, sender)
            known = known | declined
            asking = ()
        blocks = [known[call.id] for call in calls if call.id in known]
        if asking:
            expires = self._clock.now() + round(self._agent.approval_timeout * 1000)
            return Suspended(encode_blocks(blocks), tuple(asking), expires, self._usage)
        results = encode_blocks([*blocks, *joining])
        await self._journal.results(results)
        self._add("user", results)
        return None

    async def _gave(
        self, calls: Sequence[ToolCall], sender: str | None
    ) -> dict[str, history.Block]:
        """These run, side by side."""
        if not calls:
            return {}
        failpoint("before_tools")
        blocks = await asyncio.gather(*(self._result(call, sender) for call in calls))
        failpoint("tools_done")
        return {call.id: block for call, block in zip(calls, blocks, strict=True)}

    async def _declined(
        self, calls: Sequence[ToolCall], approve: Approve
    ) -> dict[str, history.Block]:
        """Asks about one after the other; results for those that may not run."""
        declined: dict[str, history.Block] = {}
        for call in calls:
            reason: str | None = None
            try:
                if await approve(call):
                    continue
            except ToolError as error:
                reason = str(error)
            declined[call.id] = history.result(call.id, approvals.said_of(reason), error=True)
        return declined

    async def _result(self, call: ToolCall, sender: str | None) -> history.Block:
        context = ToolContext(
            state=self._execution.state,
            session_key=self._place.session_key,
            execution_id=self._place.execution,
            call_id=call.id,
            agent=self._agent.name,
            sender=sender or self._place.sender,
        )
        began = self._clock.monotonic()
        result = await self._tools.run(call, context)
        self.progress.note("failed" if result.get("is_error") else "done", call.id)
        emit(
            "tool",
            self._place.session_key,
            execution=self._place.execution,
            agent=self._agent.name,
            tool=call.name,
            call=call.id,
            ms=round((self._clock.monotonic() - began) * 1000, 1),
            ok=not result.get("is_error"),
        )
        return result

    async def _resume(
        self,
        started: tuple[str, ...],
        suspended: Suspension | None,
        joining: Sequence[history.Block],
    ) -> Suspended | None:
        """An earlier run ended between a call and its result, or to ask for an approval: a call
        that had started and must not be repeated is reported to the model, the others run."""
        calls = [
            ToolCall(id=str(call["id"]), name=str(call["name"]), input=dict(call["input"]))
            for call in history.calls(self._steps[-1])
        ]
        if not calls:
            return None
        known = approvals.results(suspended)
        for call in calls:
            if call.id in started and call.id not in known and not self._repeatable(call.name):
                known[call.id] = history.result(call.id, history.INTERRUPTED, error=True)
        left = [call for call in calls if call.id not in known]
        allowed = approvals.approved(suspended, left)
        asking = [call for call in self._asking(left) if call.id not in allowed]
        if not allowed <= set(started):
            # Before they run. Saved once only, or a call that kills us would be begun for ever.
            await self._journal.answered((), tuple(call.id for call in left if call not in asking))
        sender = suspended.sender if suspended else None
        return await self._run_calls(calls, asking, known, joining, sender)

    async def _delegate(self, agent: Agent, request: str) -> delegation.Asked:
        """Another agent answers, in a turn of its own. Its time is bounded by whoever calls."""
        journal = delegation.Unkept()
        other = _Run(
            agent,
            self._client,
            (),
            delegation.question(agent, request),
            journal,
            None,
            None,
            self._place,
            self._clock,
            self._chance,
            self._execution,
            self._blobs,
            self._say,
        )
        # Nobody keeps its steps, so that it cannot wait for people.
        other.approve = self.approve or approvals.nobody
        try:
            finished = await other.finish((), None, ())
        finally:
            # Spent is spent, whatever came of it.
            self._usage += other._usage
        assert isinstance(finished, Finished), "who is asked at once suspends nothing"
        return delegation.answer(finished.text, finished.outcome, journal)

    def _repeatable(self, name: str) -> bool:
        tool = self._tools.get(name)
        return tool is not None and tool.repeatable


def _state(known: history.Block | None, asks: bool) -> CallState:
    if known is not None:
        return "failed" if known.get("is_error") else "done"
    return "asks" if asks else "running"


def _beside(limit: asyncio.Timeout, approve: Approve) -> Approve:
    """The same, while the turn's time stands still."""

    async def asking(call: ToolCall) -> bool:
        loop = asyncio.get_running_loop()
        due, began = limit.when(), loop.time()
        limit.reschedule(None)
        try:
            return await approve(call)
        finally:
            limit.reschedule(None if due is None else due + loop.time() - began)

    return asking


def _called(steps: Sequence[Message]) -> list[str]:
    """Which tools this turn has called already; what the last message calls is still to run."""
    return [str(call["name"]) for step in steps[:-1] for call in history.calls(step)]


def _keeping(blobs: Blobs | None, key: str) -> Keep | None:
    return partial(blobs.put, key) if blobs is not None else None


def _preamble(steps: Sequence[Message]) -> str:
    """What an earlier attempt has said between its tool calls."""
    said = ""
    for step in steps[max(history.exchanges(steps), default=0) :]:
        text = text_of(step.blocks).strip() if step.role == "assistant" else ""
        said += f"{text}\n\n" if text else ""
    return said


def _has_answers(steps: Sequence[Message]) -> bool:
    """Whether the model has answered in this turn already."""
    turn = steps[max(history.exchanges(steps), default=0) :]
    return any(step.role == "assistant" for step in turn)


_CUT: Final = ("max_tokens", "model_context_window_exceeded")
