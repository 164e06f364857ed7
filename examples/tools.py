"""The tools of the examples: a tide gauge that is sometimes cross, a bank, a post office, and slow work.

They write what they did into files of this folder, so that one can see what really happened, and how often.
"""

import time

import holdfast

LEVELS_M = {"harbour": 1.7, "pier": 2.4, "beach": 0.9}


@holdfast.tool(name="tide.measure", effect="read")
def measure(place: str) -> float:
    """The water level at a place, in metres."""
    if place not in LEVELS_M:
        raise holdfast.InvalidCall(f"nobody measures at {place}; there are: {', '.join(LEVELS_M)}")
    return LEVELS_M[place]


@holdfast.tool(name="tide.almanac", effect="read", retry=holdfast.Retry(max=3, first_s=0.05))
def almanac(call: holdfast.Call) -> str:
    """When high water is. The first two times one asks, it is busy."""
    if call.attempt <= 2:
        raise holdfast.Transient("the almanac is busy")
    return "noon"


@holdfast.tool(name="bank.pay", effect="once", in_doubt="verify")
def pay(call: holdfast.Call, to: str, amount: float, seconds: float = 0) -> str:
    """Pay, and take some seconds to say so. Must not happen twice."""
    with (call.folder / "ledger.txt").open("a") as ledger:
        ledger.write(f"{call.key} {amount} to {to}\n")
    time.sleep(seconds)
    return f"receipt for {amount}"


@pay.verify
def was_paid(call: holdfast.Call, arguments: dict) -> holdfast.Happened | holdfast.DidNotHappen:
    """After a crash: the bank knows whether it has seen this call."""
    ledger = call.folder / "ledger.txt"
    if ledger.exists() and call.key in ledger.read_text():
        return holdfast.Happened(f"receipt for {arguments['amount']}")
    return holdfast.DidNotHappen()


@holdfast.tool(name="post.send", effect="once")
def send(call: holdfast.Call, text: str, seconds: float = 0) -> str:
    """Post a letter, and take some seconds to say so. Nobody can check afterwards whether it was posted."""
    with (call.folder / "letters.txt").open("a") as letters:
        letters.write(f"{text}\n")
    time.sleep(seconds)
    return "posted"


@holdfast.tool(name="work.do", effect="idempotent")
def do(call: holdfast.Call, seconds: float = 0) -> str:
    """Do a piece of work, and write down that it was begun. The second time it is quick: half of it is there."""
    with (call.folder / "work.txt").open("a") as work:
        work.write(f"{call.path}\n")
    time.sleep(seconds if call.attempt == 1 else 0)
    return call.path
