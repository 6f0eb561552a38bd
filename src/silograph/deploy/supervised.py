"""Files for supervisors, in the folder of a server or an organisation: a systemd unit and a compose file.

Both start the command that a person would type, again where that helps, and not where a person has to mend something.
"""

from __future__ import annotations

import json

UNIT, COMPOSE = "silograph.service", "compose.yaml"
_HOME = "/srv/silograph"  # where the folder lies, unless its owner changes it
_MONITOR = 9100


def unit(folder: str, organisation: str | None, digest: str) -> str:
    """A systemd unit; `organisation` is None for the server."""
    words = " ".join(map(_quoted, _command(folder, organisation)))
    about = "server" if organisation is None else f"organisation {organisation}"
    return f"""# Put this folder into {_HOME} (or change both lines that name it), then:
#     systemctl link {_HOME}/FOLDER/{UNIT} && systemctl start {UNIT}
[Unit]
Description=silograph, {_escaped(about)}, deployment {digest[:12]}
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
User=silograph
WorkingDirectory={_HOME}
ReadWritePaths={_HOME}
Environment=NUMBA_CACHE_DIR=/tmp/numba
ExecStart=/usr/bin/env {words}
Restart=on-failure
RestartSec=30
# 2: a person has to mend something. 143: it was asked to end.
RestartPreventExitStatus=2
SuccessExitStatus=143
TimeoutStopSec=120
LimitNOFILE=32768
UMask=0077
NoNewPrivileges=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectSystem=strict
ProtectHome=read-only
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictSUIDSGID=yes

[Install]
WantedBy=multi-user.target
"""


def compose(folder: str, organisation: str | None, port: int) -> str:
    """A compose file: JSON, which is YAML, after a comment. It lies in the folder that it mounts."""
    command, volumes = _command(folder, organisation), [{"type": "bind", "source": ".", "target": f"/srv/{folder}"}]
    if organisation is None:
        command = [*command, "--host", "0.0.0.0"]
        volumes.append({"type": "bind", "source": "../runs", "target": "/srv/runs"})
        about = "The result is written to ../runs/out: make the folder ../runs first, for the user with this number."
    else:
        table = f"/data/{organisation}.csv"
        command = [*command, "--data", table]
        volumes.append({"type": "bind", "source": "${TABLE:?the path of your table}", "target": table})
        about = "Enrol first. TABLE is the path of your table; the folder belongs to the user with this number."
    look = f"import urllib.request; urllib.request.urlopen('http://127.0.0.1:{_MONITOR}/health')"
    service: dict[str, object] = {
        "build": {"dockerfile_inline": 'FROM python:3.12-slim\nRUN pip install "silograph[deploy]"\n'},
        "command": [word.replace("$", "$$") for word in command],
        "working_dir": "/srv",
        "user": "${OWNER:-1000}",
        "volumes": [
            {name: text if text.startswith("${") else text.replace("$", "$$") for name, text in volume.items()}
            for volume in volumes
        ],
        "environment": {"NUMBA_CACHE_DIR": "/tmp/numba", "HOME": "/tmp"},
        "healthcheck": {"test": ["CMD", "python", "-c", look], "interval": "30s", "start_period": "60s"},
        "init": True,
        "read_only": True,
        "tmpfs": ["/tmp"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "restart": "on-failure",
        "stop_grace_period": "2m",
    }
    if organisation is None:
        service["ports"] = [f"{port}:{port}"]
    text = json.dumps({"services": {"silograph": service}}, indent=1)
    return f"# docker compose up --build. {about}\n# OWNER=1000\n{text}\n"


def _command(folder: str, organisation: str | None) -> list[str]:
    more = ["--monitor", str(_MONITOR), "--json-log"]
    if organisation is None:
        return ["silograph", "serve", folder, "-o", "runs/out", *more]
    return ["silograph", "join", folder, *more]


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def _quoted(word: str) -> str:
    """As systemd reads it: in double quotes where it is not plain."""
    inside = _escaped(word).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return inside if inside == word and " " not in word and "'" not in word and word != ";" else f'"{inside}"'
