"""`holdfast` for shells in tests: passes everything on to a command server, and ends as the forked command ends.

Started as `python -IS command_script.py ADDRESS SCRIPT ARGUMENT…`, so that it costs little more than the fork itself.
"""

import array
import json
import os
import signal
import socket
import sys

address, script, *arguments = sys.argv[1:]
request = {
    "script": script,
    "arguments": arguments,
    "cwd": os.getcwd(),
    "env": dict(os.environ),
    "new_session": False,
    "ignored": [],
    "bound": True,
}
with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rb") as answers:
    connection.connect(address)
    connection.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
    connection.sendall(json.dumps(request).encode() + b"\n")
    pid = int(answers.readline())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    code = os.waitstatus_to_exitcode(int(answers.readline()))
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
