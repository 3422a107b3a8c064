"""Mail by this machine's own sendmail, as its user."""

import shutil
import subprocess
from collections.abc import Sequence
from email.message import EmailMessage

from gpudeck.language.printable import printable

PLACES = "/usr/sbin:/usr/lib:/usr/bin"
WITHIN_S = 30.0


def sendmail() -> str | None:
    return shutil.which("sendmail") or shutil.which("sendmail", path=PLACES)


def send_mail(to: str, subject: str, lines: Sequence[str]) -> str:
    """Send a mail; return why it was not sent. "": it was."""
    program = sendmail()
    if program is None:
        return "this machine has no sendmail"
    message = EmailMessage()
    message["To"] = to
    message["Subject"] = printable(subject, " ")
    message.set_content("\n".join(lines))
    try:
        process = subprocess.run([program, "-i", "--", to], input=message.as_bytes(),
                                 capture_output=True, timeout=WITHIN_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"sendmail: {error}"
    return "" if process.returncode == 0 else f"sendmail: exit status {process.returncode}"
