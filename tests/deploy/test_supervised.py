"""Files for supervisors, read by the supervisors' own programs."""

import os
import shutil
import subprocess

import pytest

from silograph.deploy.supervised import compose, unit

ODD = 'hill; $HOME 100% "east"\\\'s'
WHO = [None, "hill", ODD]


@pytest.mark.parametrize("who", WHO)
def test_systemd_finds_nothing_wrong_with_a_unit(who, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here")
    made = tmp_path / "silograph.service"
    made.write_text(unit(who or "server", who, "d" * 64))
    done = subprocess.run(["systemd-analyze", "verify", str(made)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "silograph.service" not in done.stderr
    broken = tmp_path / "broken.service"
    broken.write_text(made.read_text().replace("Restart=on-failure", "Restart=sometimes"))
    done = subprocess.run(["systemd-analyze", "verify", str(broken)], capture_output=True, text=True, check=False)
    assert "sometimes" in done.stderr  # it looks


TEXTS, TEXT, YES = (list, str), (str,), (bool,)
#: Keys of a service, as compose-spec.json has them, with the kinds of values that we write.
SCHEMA = {
    "build": (dict,), "command": TEXTS, "working_dir": TEXT, "user": TEXT, "volumes": (list,), "environment": (dict,),
    "healthcheck": (dict,), "init": YES, "read_only": YES, "tmpfs": TEXTS, "cap_drop": (list,), "ports": (list,),
    "security_opt": (list,), "restart": TEXT, "stop_grace_period": TEXT,
}  # fmt: skip


@pytest.mark.parametrize("who", WHO)
def test_a_compose_file_has_the_command_that_a_person_would_type(who, tmp_path):
    yaml = pytest.importorskip("yaml")
    folder, text = who or "server", compose(who or "server", who, 8765)
    service = yaml.safe_load(text)["services"]["silograph"]
    assert all(isinstance(value, SCHEMA[key]) for key, value in service.items())
    assert service["restart"] in ("no", "always", "on-failure", "unless-stopped")
    for volume in service["volumes"]:
        assert volume.keys() == {"type", "source", "target"}
        assert volume["type"] == "bind"
    words = [word.replace("$$", "$") for word in service["command"]]
    assert words[:3] == ["silograph", "serve" if who is None else "join", folder]
    assert service["volumes"][0]["target"].replace("$$", "$") == f"/srv/{folder}"
    assert ("ports" in service) == (who is None)
    if shutil.which("docker") and not subprocess.run(["docker", "compose", "version"], capture_output=True).returncode:
        (tmp_path / "compose.yaml").write_text(text)
        command = ["docker", "compose", "--project-name", "silograph", "-f", str(tmp_path / "compose.yaml"), "config"]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TABLE": "/a/t.csv"})
        assert done.returncode == 0, done.stderr
