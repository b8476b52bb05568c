"""Make the secrets of compose.yaml, each random, in deploy/secrets; those that are there stay. Needs Python alone.

python3 deploy/make_secrets.py
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import sys
from pathlib import Path

ROUNDS = 101  # what mosquitto_passwd uses; the passwords are random, and long


def mosquitto_line(user: str, password: str) -> str:
    """A line of a password file of mosquitto 2: PBKDF2 with SHA-512."""
    salt = os.urandom(12)
    key = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ROUNDS)
    return f"{user}:$7${ROUNDS}${base64.b64encode(salt).decode()}${base64.b64encode(key).decode()}\n"


def make_secrets(folder: Path) -> list[str]:
    """Write what is missing in a folder that no other user may enter, and return the names of it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    pairs = (
        ("mqtt_password", "mosquitto_passwords", lambda password: mosquitto_line("station", password)),
        ("postgres_password", "station.env", lambda password: f"PGPASSWORD={password}\n"),
    )
    made = []
    for first, second, derived in pairs:
        present = [(folder / name).exists() for name in (first, second)]
        if all(present):
            continue
        if any(present):
            raise SystemExit(f"{first} and {second} in {folder} belong together; remove the one that is there.")
        password = secrets.token_urlsafe(32)
        for name, content in ((first, password), (second, derived(password))):
            path = folder / name
            path.write_text(content, encoding="ascii")
            # The users in the containers have other numbers, and read these files alone; the folder keeps others out.
            path.chmod(0o600 if name == "station.env" else 0o644)
            made.append(name)
    return made


if __name__ == "__main__":
    target = Path(__file__).parent / "secrets"
    made = make_secrets(target)
    sys.stdout.write(f"made in {target}: {', '.join(made)}\n" if made else f"all secrets are in {target} already\n")
