"""The real `treeforge` command, with every answer of the scripted policy noted in a file that outlives a kill.

python counting_command.py NOTES run …
"""

import os
import sys

from treeforge.cli import invoke
from treeforge.policy.scripted import ScriptedPolicy

notes = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
answer = ScriptedPolicy._answer


def noted(self, request):
    os.write(notes, request.digest.hex().encode() + b"\n")
    return answer(self, request)


ScriptedPolicy._answer = noted
sys.exit(invoke(sys.argv[2:]))
