"""The table of commands against what it promises: names, verbs, examples, pages."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from broker.schema.control_schema import NOUNS, VERBS
from management.ctl import commands as commands
from management.ctl import completion, helping, parsing
from management.ctl.processes import NO_COUNTERPART
from management.ctl.table import ALIASES, COMMANDS, GROUPS, Command
from tests.appliance import ROOT
from tests.ctl.conftest import Ctl

# Names from the help of lavinmqctl (LavinMQ 2.x) and of RabbitMQ 3.10.8's tools.
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
    autocomplete help version await_startup reset rotate_logs shutdown start_app stop stop_app wait
    await_online_nodes change_cluster_node_type cluster_status force_boot force_reset
    forget_cluster_node join_cluster rename_cluster_node update_cluster_nodes cancel_sync_queue
    sync_queue add_user authenticate_user change_password clear_password clear_user_limits
    delete_user list_user_limits list_users set_user_limits set_user_tags clear_permissions
    clear_topic_permissions list_permissions list_topic_permissions list_user_permissions
    list_user_topic_permissions list_vhosts set_permissions set_topic_permissions list_bindings
    list_channels list_ciphers list_connections list_consumers list_exchanges list_hashes
    list_node_auth_attempt_stats list_queues list_unresponsive_queues ping report schema_info status
    clear_global_parameter clear_parameter list_global_parameters list_parameters
    set_global_parameter set_parameter clear_operator_policy clear_policy list_operator_policies
    list_policies set_operator_policy set_policy add_vhost clear_vhost_limits delete_vhost
    list_vhost_limits restart_vhost set_vhost_limits set_vhost_tags trace_off trace_on decode encode
    environment set_cluster_name set_disk_free_limit set_log_level set_vm_memory_high_watermark
    export_definitions import_definitions enable_feature_flag list_feature_flags
    close_all_connections close_all_user_connections close_connection eval eval_file exec force_gc
    resume_listeners suspend_listeners delete_queue purge_queue hipe_compile node_health_check
"""
RABBITMQ_DIAGNOSTICS = """
    alarms check_alarms check_certificate_expiration check_if_node_is_mirror_sync_critical
    check_if_node_is_quorum_critical check_local_alarms check_port_connectivity check_port_listener
    check_protocol_listener check_running check_virtual_hosts cipher_suites consume_event_stream
    discover_peers erlang_version is_booting is_running list_network_interfaces listeners log_tail
    log_tail_stream maybe_stuck memory_breakdown observer quorum_status remote_shell
    runtime_thread_stats server_version stream_status tls_versions certificates
    command_line_arguments disable_auth_attempt_source_tracking enable_auth_attempt_source_tracking
    erlang_cookie_hash erlang_cookie_sources log_location os_env reset_node_auth_attempt_metrics
    resolve_hostname resolver_info reclaim_quorum_memory
"""
RABBITMQ_QUEUES = """
    autocomplete help grow rebalance shrink add_member delete_member
    check_if_node_is_mirror_sync_critical check_if_node_is_quorum_critical peek quorum_status
    stream_status reclaim_quorum_memory
"""
RABBITMQ_UPGRADE = """
    await_online_quorum_plus_one await_online_synchronized_mirror drain post_upgrade revive
"""
RABBITMQ_STREAMS = """
    add_replica delete_replica restart_stream set_stream_retention_policy stream_status
    add_super_stream delete_super_stream list_stream_connections list_stream_consumers
    list_stream_publishers list_stream_consumer_groups list_stream_group_consumers
    list_stream_tracking coordinator_status
"""
# From newer versions, and what people use of both.
OTHERS = """
    list_deprecated_features check_if_any_deprecated_features_are_used auth_attempts
    check_if_metadata_store_is_initialized check_if_metadata_store_is_initialized_with_data
    set_permissions_globally update_vhost_metadata enable_vhost_protection_from_deletion
    disable_vhost_protection_from_deletion list_shovels
"""
NAMES = {
    name
    for names in (
        LAVINMQCTL,
        RABBITMQCTL,
        RABBITMQ_DIAGNOSTICS,
        RABBITMQ_QUEUES,
        RABBITMQ_UPGRADE,
        RABBITMQ_STREAMS,
        OTHERS,
    )
    for name in names.split()
}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_it_has_the_command_or_says_why_not(name: str) -> None:
    command = parsing.find(name)
    assert command.group in GROUPS
    assert command.help.startswith("Not here") is (command.name in NO_COUNTERPART)


def test_it_has_all_commands_of_lavinmqctl() -> None:
    assert not {*LAVINMQCTL.split()} & NO_COUNTERPART.keys()


@pytest.mark.parametrize("name", NO_COUNTERPART)
def test_it_gives_the_reason_for_what_it_has_not(name: str, run: Ctl) -> None:
    refused = run(name, "-q", "an argument")
    assert refused.status == 70
    assert NO_COUNTERPART[name] in refused.err


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
