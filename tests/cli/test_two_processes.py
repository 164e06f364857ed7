"""One process drives, another commands, watches, or tries to drive as well."""

from __future__ import annotations

import json
import signal

from cli.workshop import Workshop


def test_pause_from_another_process_lets_the_running_step_finish(shop: Workshop) -> None:
    process = shop.start("run", "gate.yaml")
    shop.wait_for_log("gate begun")
    paused = shop.run("pause", "@last", "--why", "lunch")
    assert paused.out.startswith("applied as event ")
    assert "paused; steps that are running finish first" in paused.out
    again = shop.run("pause", "@last")
    assert again.out.startswith("unchanged: already paused")
    shop.open_gate()
    result = shop.finish(process, 3)
    assert f"go on with: holdfast resume {shop.newest()['id']}" in result.out
    assert shop.log() == ["before ran", "gate begun", "gate ended"]
    shop.run("resume", "@last")
    assert shop.log()[-1] == "after ran"


def test_interrupt_and_stop_from_another_process_end_the_run(shop: Workshop) -> None:
    process = shop.start("run", "gate.yaml")
    shop.wait_for_log("gate begun")
    assert shop.run("interrupt", "@last", "--json").json["outcome"] == "applied"
    shop.finish(process, 130)
    process = shop.start("resume", "@last")
    shop.wait_for_status("running")
    shop.run("stop", "@last", "--why", "enough")
    result = shop.finish(process, 1)
    assert "stopped by" in result.out
    assert f"run it again: holdfast retry {shop.newest()['id']}" in result.out


def test_two_processes_resuming_the_same_execution_drive_it_once(shop: Workshop) -> None:
    first = shop.start("run", "gate.yaml")
    shop.wait_for_log("gate begun")
    shop.kill(first)
    one, two = shop.start("resume", "@last"), shop.start("resume", "@last")
    shop.wait_for_log("gate begun")
    for process in (one, two):
        assert process.stdout is not None
        process.stdout.readline()  # each has said what it does: it drives, or it follows
    shop.open_gate()
    results = [shop.finish(process) for process in (one, two)]
    assert all("completed in" in result.out for result in results)
    assert shop.log().count("after ran") == 1
    assert shop.log().count("gate ended") == 1


def test_resume_of_what_another_process_drives_follows_it(shop: Workshop) -> None:
    driving = shop.start("run", "gate.yaml")
    shop.wait_for_log("gate begun")
    following = shop.start("resume", "@last")
    assert following.stdout is not None
    identity = shop.newest()["id"]
    assert following.stdout.readline() == f"another process drives {identity}; following it\n"
    shop.open_gate()
    assert "after: completed" in shop.finish(following).out
    shop.finish(driving)
    assert shop.log().count("gate begun") == 1


def test_watch_follows_to_the_end_with_the_events_exit_code(shop: Workshop) -> None:
    driving = shop.start("run", "gate.yaml")
    shop.wait_for_log("gate begun")
    watching = shop.start("watch", "@last", "--json")
    shop.open_gate()
    *events, last = shop.finish(watching).lines
    shop.finish(driving)
    durable = [event["seq"] for event in events if event["seq"] is not None]
    assert durable == list(range(1, len(durable) + 1))
    assert last["status"] == "completed"


def test_a_watcher_says_so_when_nobody_drives_and_leaves_on_ctrl_c(shop: Workshop) -> None:
    driving = shop.start("run", "gate.yaml")
    shop.wait_for_log("gate begun")
    shop.kill(driving)
    identity = shop.newest()["id"]
    watching = shop.start("watch", "@last")
    shop.wait_for_words(watching, "gate: started")
    watching.send_signal(signal.SIGINT)
    left = shop.finish(watching, 130)
    nobody = f"nobody is driving it now; go on with: holdfast resume {identity}"
    assert left.err == f"holdfast: {nobody}\n"
    assert nobody in left.out
    assert "other process" not in left.out
    assert shop.newest()["status"] == "running"


def test_a_watcher_of_a_driven_execution_leaves_it_to_the_other_process(shop: Workshop) -> None:
    driving = shop.start("run", "gate.yaml")
    shop.wait_for_log("gate begun")
    watching = shop.start("watch", "@last")
    shop.wait_for_words(watching, "gate: started")
    watching.send_signal(signal.SIGINT)
    left = shop.finish(watching, 130)
    assert f"it goes on in the other process; to interrupt it: holdfast interrupt {shop.newest()['id']}" in left.out
    assert left.out.endswith(f"another process drives it; follow it with: holdfast watch {shop.newest()['id']}\n")
    assert "holdfast resume" not in left.out
    assert left.err == ""
    shop.open_gate()
    shop.finish(driving)


def test_a_follower_says_so_when_the_driver_dies_meanwhile(shop: Workshop) -> None:
    driving = shop.start("run", "gate.yaml")
    shop.wait_for_log("gate begun")
    following = shop.start("events", "@last", "--follow", "--json")
    assert following.stdout is not None
    assert following.stderr is not None
    following.stdout.readline()
    shop.kill(driving)
    said = json.loads(following.stderr.readline())
    assert said == {"note": f"nobody is driving it now; go on with: holdfast resume {shop.newest()['id']}"}


def test_approve_from_another_process_with_edited_arguments(shop: Workshop) -> None:
    shop.run("run", "ask.yaml", code=3)
    identity = shop.newest()["id"]
    approved = shop.run("approve", "@last", "publish", "--with", "value=8", "--why", "looks good")
    assert "approved publish with edited arguments" in approved.out
    assert f"nobody is driving it now; go on with: holdfast resume {identity}" in approved.out
    again = shop.run("approve", "@last", "publish")
    assert again.out.startswith("unchanged: publish was already granted")
    *_, last = shop.run("resume", "@last", "--json").lines
    assert (last["status"], last["output"]) == ("completed", 8)
    granted = [event for event in shop.run("events", "@last", "--json").lines if event["type"] == "approval:granted"]
    assert [event["arguments"] for event in granted] == [{"value": 8}]


def test_approve_while_another_process_drives_needs_no_resume(shop: Workshop) -> None:
    shop.write(
        "both.yaml",
        "name: both\nsteps:\n  - {id: gate, tool: work.gate}\n"
        "  - {id: publish, tool: work.do, approval: required, needs: []}\n",
    )
    process = shop.start("run", "both.yaml")
    shop.wait_for_log("gate begun")
    approved = shop.run("approve", "@last", "--sticky")
    assert "nobody is driving" not in approved.out
    shop.wait_for_log("publish ran")
    shop.open_gate()
    shop.finish(process)
    granted = [event for event in shop.run("events", "@last", "--json").lines if event["type"] == "approval:granted"]
    assert [(event["arguments"], event["sticky"]) for event in granted] == [(None, True)]


def test_deny_fails_the_step_with_the_reason(shop: Workshop) -> None:
    shop.run("run", "ask.yaml", code=3)
    shop.run("deny", "@last", "publish", "--why", "not today")
    assert "publish: denied by" in shop.run("events", "@last").out
    result = shop.run("resume", "@last", code=1)
    assert "not today" in result.out
    assert shop.log() == ["draft ran"]


def test_run_stays_for_an_event_and_send_delivers_it(shop: Workshop) -> None:
    process = shop.start("run", "event.yaml", "--json")
    shop.wait_for_status("waiting")
    sent = shop.run("send", "@last", "start", '{"speed": 3}')
    assert "received start" in sent.out
    *_, last = shop.finish(process).lines
    assert last["output"] == {"speed": 3}


def test_send_warns_about_an_event_that_no_step_waits_for(shop: Workshop) -> None:
    process = shop.start("run", "event.yaml", "--json")
    shop.wait_for_status("waiting")
    sent = shop.run("send", "@last", "strat")
    warning = 'warning: no step waits for "strat" now, it is kept; waited for: "start" (step go); did you mean "start"?'
    assert warning in sent.out
    assert "warning" not in shop.run("send", "@last", "start").out
    shop.finish(process)


def test_a_question_is_answered_with_json_or_text(shop: Workshop) -> None:
    asked = shop.run("run", "asks", code=3)
    identity = shop.newest()["id"]
    assert "colour asks for an answer: which colour?" in asked.out
    assert f"holdfast answer {identity} colour 'TEXT OR JSON'" in asked.out
    assert "answered colour" in shop.run("answer", "@last", "colour", "blue").out
    *_, last = shop.run("resume", "@last", "--json").lines
    assert last["output"] == "painted blue"


def test_a_failure_that_waits_for_a_correction_is_resolved_with_other_arguments(shop: Workshop) -> None:
    asked = shop.run("run", "even.yaml", code=3)
    assert "count asks for a correction: work.even failed: 3 is odd" in asked.out
    unknown = shop.run("resolve", "@last", "count", "--fallback", code=2)
    assert "count can be resolved with again, done, skip, fail; not with fallback" in unknown.err
    shop.run("resolve", "@last", "count", "--again", "--with", "number=4")
    *_, last = shop.run("resume", "@last", "--json").lines
    assert (last["status"], last["output"]) == ("completed", 4)


def test_retry_keeps_what_completed_and_takes_a_corrected_plan(shop: Workshop) -> None:
    shop.run("run", "fail.yaml", code=1)
    failed = shop.newest()["id"]
    plan = (shop.folder / "fail.yaml").read_text()
    shop.write("fixed.yaml", plan.replace("tool: work.fail", "tool: work.do"))
    *_, last = shop.run("retry", failed, "--plan", "fixed.yaml", "--json").lines
    assert last["status"] == "completed"
    assert last["id"] != failed
    assert shop.log() == ["fine ran", "broken ran", "never ran"]
    assert f"forked from  {failed}" in shop.run("show", last["id"]).out


def test_retry_and_fork_say_what_they_keep_and_show_only_what_happens(shop: Workshop) -> None:
    shop.write(
        "items.yaml",
        "name: items\nsteps:\n  - {id: each, for_each: [1, 2], tool: work.do}\n"
        "  - {id: fine, tool: work.do}\n  - {id: broken, tool: work.fail}\n",
    )
    shop.run("run", "items.yaml", code=1)
    failed = shop.newest()["id"]
    retried = shop.run("retry", failed, code=1).out.splitlines()
    again = shop.newest()["id"]
    assert retried[:3] == [f"items is execution {again}", f"kept from {failed}: 3 steps", "started"]
    assert "broken: started (work.fail)" in retried
    assert not any(line.startswith(("each[", "fine")) for line in retried)
    forked = shop.run("fork", failed, "--at", "fine", code=1).out
    assert f"kept from {failed}: 2 steps\n" in forked
    assert "each[" not in forked
    result = shop.run("retry", failed, "--again", "--json", code=1)
    durable = [event["seq"] for event in result.lines[:-1] if event["seq"] is not None]
    assert durable == list(range(1, len(durable) + 1))
    assert json.loads(result.err.splitlines()[0])["note"].endswith(f"kept from {failed}: 3 steps")


def test_retry_with_other_inputs_and_fork_at_a_step(shop: Workshop) -> None:
    shop.run("run", "two.yaml")
    *_, last = shop.run("retry", "@last", "--from", "first", "-i", "count=9", "--json").lines
    assert last["output"] == 9
    refused = shop.run("retry", "@last", "-i", "count=x", code=2)
    assert 'inputs.count: expected a whole number, got the string "x"' in refused.err
    before = len(shop.log())
    *_, forked = shop.run("fork", "@last", "--at", "second", "--json").lines
    assert forked["status"] == "completed"
    assert shop.log()[before:] == ["second ran"]
    unknown = shop.run("fork", "@last", "--at", "secnd", code=2)
    assert 'there is no step "secnd" in this execution; did you mean "second"?' in unknown.err


def test_what_makes_no_sense_is_refused_with_exit_2(shop: Workshop) -> None:
    shop.run("run", "two.yaml")
    identity = shop.newest()["id"]
    for verb in ("pause", "interrupt"):
        refused = shop.run(verb, "@last", code=2)
        again = f"to run it again: holdfast retry {identity} --from STEP"
        assert refused.err == f"holdfast: the execution is completed; {again}\n"
    assert "there is nothing to stop" in shop.run("stop", "@last", code=2).err
    one = "say how to resolve it, with exactly one of --done, --again, --verify, --skip, --fallback, --fail"
    assert one in shop.run("resolve", "@last", "first", code=2).err
    assert one in shop.run("resolve", "@last", "first", "--done", "--skip", code=2).err
    assert "--output goes with --done" in shop.run("resolve", "@last", "a", "--skip", "--output", "1", code=2).err
    assert "--with goes with --again" in shop.run("resolve", "@last", "a", "--skip", "--with", "a=1", code=2).err
    bad_json = shop.run("resolve", "@last", "a", "--done", "--output", "{", code=2)
    assert "--output: expected JSON, got '{'" in bad_json.err


def test_resume_explains_a_changed_world_and_takes_force(shop: Workshop) -> None:
    process = shop.start("run", "gate.yaml")
    shop.wait_for_log("gate begun")
    process.send_signal(signal.SIGINT)
    shop.finish(process, 130)
    shop.open_gate()
    tools = (shop.folder / "tools.py").read_text()
    shop.write("tools.py", tools.replace("value: int = 0) -> int", "value: int = 0, more: int = 1) -> int"))
    refused = shop.run("resume", "@last", code=2)
    assert "its tool work.do has other parameters or another version now" in refused.err
    assert "resume with --force to go on regardless" in refused.err
    assert shop.newest()["status"] == "interrupted"
    *_, last = shop.run("resume", "@last", "--force", "--json").lines
    assert last["status"] == "completed"
