"""Runs the code blocks of docs/python.md, each as the program that its first line names."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import PATIENCE, ended

import trax

PAGE = Path(__file__).parents[3] / "docs" / "python.md"
BLOCKS = {
    code.partition("\n")[0].removeprefix("# "): code
    for code in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
}
# A job for each worker, and the expected output.
WORKERS: dict[str, tuple[str, Any, Any]] = {
    "worker.py": ("hello", {"name": "ada"}, "greeted ada"),
    "threads_worker.py": ("report.build", {"pages": 3}, {"printed": 3}),
    "once_worker.py": ("account.pay", {"cents": 3}, {"paid": True}),
    "step_worker.py": ("card.charge", {"cents": 3}, {"charged": 3}),
}

Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path, url: str) -> Start:
    def start(name: str) -> subprocess.Popen[str]:
        (tmp_path / name).write_text(BLOCKS[name])
        environment = {**os.environ, "DATABASE_URL": url}
        pipe = subprocess.PIPE
        command = [sys.executable, name]
        return subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True
        )

    return start


@pytest.mark.parametrize("name", WORKERS)
def test_a_worker_of_the_page_works_and_ends_at_sigterm(
    name: str, start: Start, client: trax.Client
) -> None:
    task, job, output = WORKERS[name]
    job_id = client.enqueue(task, job)
    worker = start(name)
    try:
        assert ended(client, job_id).output == output
        if name == "worker.py":
            producer = start("enqueue.py")
            assert producer.communicate(timeout=PATIENCE)[0] == "greeted ada\n"
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=PATIENCE)
    finally:
        worker.kill()
    assert worker.returncode == 0


def test_a_job_of_the_page_sleeps_and_waits_for_a_signal(start: Start) -> None:
    worker = start("signup_worker.py")
    try:
        said = start("click.py").communicate(timeout=PATIENCE)[0]
        steps = ["create", "pause", "clicked", "letter", "letter#2", "children"]
        assert said == f"{ {'link': 'in the mail'} }\n{steps}\n"
    finally:
        worker.kill()
        worker.communicate()


OTHERS = BLOCKS.keys() - WORKERS.keys() - {"enqueue.py", "signup_worker.py", "click.py"}


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_a_producer_of_the_page_enqueues_its_jobs(
    name: str, start: Start, db: psycopg.Connection[Any]
) -> None:
    wanted = set(re.findall(r'{"account": "(\w+)"}', BLOCKS[name]))
    assert wanted
    producer = start(name)
    said = producer.communicate(timeout=PATIENCE)[1]
    assert producer.returncode == 0, said
    sql = "select input ->> 'account' from trax.work_queue where task = 'mail.welcome'"
    assert wanted <= {row[0] for row in db.execute(sql)}


def test_the_page_names_every_error() -> None:
    text = PAGE.read_text()
    for name in trax.__all__:
        if name.endswith("Error"):
            assert f"{name}`" in text, name


def test_the_page_names_every_attribute_of_a_context() -> None:
    text = PAGE.read_text()
    internal = ("completed", "note", "on_stop", "reach", "refuse_waits")
    for name in vars(trax.Context.__base__):
        if not name.startswith("_") and name not in internal:
            assert f"`{name}" in text, name
