"""The table of commands against what it promises: names, verbs, examples, pages."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from broker.schema.control_schema import NOUNS, VERBS
from management.ctl import commands as commands
from management.ctl import completion, helping, parsing
from management.ctl.table import ALIASES, COMMANDS, GROUPS, Command
from tests.appliance import ROOT
from tests.ctl.conftest import Ctl

# Names from the help of lavinmqctl (LavinMQ 2.x) and of rabbitmqctl 3.10.8.
LAVINMQCTL = """
    add_user delete_user list_users change_password set_user_tags set_permissions hash_password
    add_vhost delete_vhost list_vhosts set_vhost_limits list_queues create_queue delete_queue
    purge_queue pause_queue resume_queue restart_queue list_exchanges create_exchange
    delete_exchange list_policies set_policy clear_policy list_connections close_connection
    close_all_connections export_definitions import_definitions definitions list_shovel add_shovel
    delete_shovel list_federation add_federation delete_federation status cluster_status gc_collect
    stop_app start_app
"""
RABBITMQCTL = """
    help version await_online_nodes await_startup cluster_status environment ping status stop
    start_app stop_app wait rotate_logs reset force_reset force_boot join_cluster
    forget_cluster_node change_cluster_node_type set_cluster_name
    add_user authenticate_user change_password clear_password clear_user_limits delete_user
    list_users list_user_limits set_user_limits set_user_tags
    clear_permissions clear_topic_permissions list_permissions list_topic_permissions
    list_user_permissions list_user_topic_permissions list_vhosts set_permissions
    set_permissions_globally set_topic_permissions
    list_bindings list_channels list_connections list_consumers list_exchanges list_queues
    list_unresponsive_queues clear_parameter clear_global_parameter list_parameters
    list_global_parameters set_parameter set_global_parameter set_policy clear_policy
    list_policies set_operator_policy clear_operator_policy list_operator_policies
    add_vhost delete_vhost set_vhost_limits clear_vhost_limits list_vhost_limits restart_vhost
    set_vhost_tags trace_on trace_off export_definitions import_definitions
    close_connection close_all_connections close_all_user_connections delete_queue purge_queue
    eval force_gc set_disk_free_limit set_log_level set_vm_memory_high_watermark
    enable_feature_flag list_feature_flags
    alarms auth_attempts check_alarms check_certificate_expiration check_local_alarms
    check_port_connectivity check_port_listener check_protocol_listener check_running
    check_virtual_hosts is_running listeners node_health_check
"""


@pytest.mark.parametrize("name", sorted({*LAVINMQCTL.split(), *RABBITMQCTL.split()}))
def test_it_has_the_command(name: str) -> None:
    assert parsing.find(name).group in GROUPS


@pytest.mark.parametrize("command", COMMANDS.values(), ids=lambda command: command.name)
def test_it_calls_a_verb_with_arguments_that_it_has(command: Command) -> None:
    if not command.verb:
        assert command.run is not None
        return
    verb = VERBS[command.verb]
    if command.run is None:
        taken = {one.to or one.key for one in command.parameters}
        taken |= {*command.fixed, *(["vhost"] if command.vhost else [])}
        assert taken <= set(verb.arguments.__struct_fields__)


def example_lines() -> list[str]:
    return [example for command in COMMANDS.values() for example in command.examples]


@pytest.mark.parametrize("example", example_lines())
def test_its_examples_can_be_read(example: str) -> None:
    """Each example is a line of its own command that the parser takes."""
    words = shlex.split(example.replace("<(", "( "), comments=False)
    if helping.PROGRAM in example:
        words = words[words.index("ctl") + 1 :]
    for mark in ("<", ">", "|", ")"):
        if mark in words:
            words = words[: words.index(mark)]
    words = [word.rstrip(")") if word.endswith("bash)") else word for word in words]
    name, rest = parsing.split(words)
    assert name is not None
    parsing.options(parsing.find(name), rest)


def test_it_explains_every_command(run: Ctl) -> None:
    everything = run("help").out
    for name, command in COMMANDS.items():
        page = run("help", name).out
        assert f"usage: manage.py ctl {name}" in page
        assert all(example in page for example in command.examples)
        assert command.examples or "Not here" in command.help
        assert name in everything
        if name != "help":
            assert run(name, "--help").out == page


def test_it_names_no_command_twice() -> None:
    assert not ALIASES.keys() & COMMANDS.keys()
    nouns = {one.names for command in COMMANDS.values() for one in command.parameters}
    assert nouns - {""} <= NOUNS.keys()


def complete(*words: str, script: str) -> list[str]:
    """What bash offers for the last of these words."""
    line = " ".join(shlex.quote(word) for word in words)
    text = f"""{script}
COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}
_manage_py_ctl
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        ["bash", "-c", text], capture_output=True, text=True, cwd=ROOT, timeout=60, check=False
    )
    assert not done.stderr
    return done.stdout.split()


def test_bash_completes_commands_options_columns_and_values() -> None:
    script = completion.bash("manage.py", COMMANDS)
    assert complete("manage.py", "ctl", "purge", script=script) == ["purge_queue"]
    assert "list_queues" in complete("manage.py", "ctl", "-p", "/", "list_", script=script)
    assert complete("manage.py", "ctl", "create_queue", "--str", script=script) == [
        "--stream-queue"
    ]
    offered = complete("manage.py", "ctl", "list_queues", "name", "messages_u", script=script)
    assert offered[0] == "messages_unacknowledged"
    assert complete("manage.py", "ctl", "--format", "js", script=script) == ["json"]
    assert complete("manage.py", "ctl", "help", "set_op", script=script) == ["set_operator_policy"]
    assert complete("manage.py", "ctl", "completion", "", script=script) == ["bash", "zsh", "fish"]


@pytest.mark.parametrize("shell", completion.SCRIPTS)
def test_each_shell_gets_every_command(shell: str, run: Ctl) -> None:
    script = run("completion", shell).out
    for name in COMMANDS:
        assert name in script
    if shell != "fish":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True, timeout=20)
