"""Do the tests notice faults? Each fault is put into a copy of the source by itself, and the named test must fail.

    python -m tests.planted_faults                    # all: about twenty minutes
    python -m tests.planted_faults --only softmax     # those with a word in their name

The tests run once without a fault, where they must pass, and then once with each. Prints a table; the exit code is 1 if
a fault survives.
"""

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
MAX_MEMORY, MAX_SECONDS = 8 * 2**30, 300


@dataclass(frozen=True)
class Fault:
    """A fault of the source: a text that occurs once in a file, what replaces it, and the test that must fail."""

    name: str
    file: str
    old: str
    new: str
    test: str


SYNC_FOLDER = """    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
"""
FAULTS = [
    Fault(
        "`fsync` taken out of `atomic_write`", "files.py",
        '        with temporary.open("rb") as written:\n            os.fsync(written.fileno())\n', "",
        "test_durability.py::test_an_atomic_write_syncs_the_content_renames_it_and_syncs_the_folder",
    ),
    Fault(
        "`fsync` taken out of `synced_write`", "files.py",
        "        file.flush()\n        os.fsync(file.fileno())\n", "        file.flush()\n",
        "test_durability.py::test_a_synced_write_is_on_the_disk_when_it_returns_and_appends_without_touching_what_was_there",
    ),
    Fault(
        "`fsync` taken out of `sync_folder`", "files.py", SYNC_FOLDER, SYNC_FOLDER.replace("os.fsync(folder)", "pass"),
        "test_durability.py::test_every_crash_while_checkpoints_are_written_leaves_the_last_complete_one",
    ),
    Fault(
        "`add_metrics` without a sync", "lab/training/run_directory.py",
        'synced_write(self.path / "metrics.jsonl", (json.dumps(record) + "\\n").encode(), mode="ab")',
        '(self.path / "metrics.jsonl").open("ab").write((json.dumps(record) + "\\n").encode())',
        "test_durability.py::test_metrics_are_on_the_disk_when_they_are_added_and_every_crash_leaves_whole_lines",
    ),
    Fault(
        "the learning rate comes one step late", "lab/training/loop.py",
        "= learning_rate(step, training)", "= learning_rate(max(step - 1, 0), training)",
        "test_training.py::test_every_optimizer_step_uses_the_learning_rate_of_its_schedule",
    ),
    Fault(
        "the mask is dropped", "operators/base.py",
        "    merged = presence(mask, weights, elements)\n", "    merged = presence(None, weights, elements)\n",
        "test_set_laws.py::test_packed_padded_and_one_at_a_time_agree",
    ),
    Fault(
        "softmax of a masked set over the wrong axis", "operators/state.py",
        "-torch.inf).softmax(dim=-1).masked_fill(absent, 0.0)", "-torch.inf).softmax(dim=-2).masked_fill(absent, 0.0)",
        "test_set_laws.py::test_the_result_is_the_literal_equation",
    ),
    Fault(
        "softmax of a whole set over the wrong axis", "operators/state.py",
        "        return scores.softmax(dim=-1)\n", "        return scores.softmax(dim=-2)\n",
        "test_evaluation_orders.py::test_weights_are_the_softmax_over_the_present_elements",
    ),
    Fault(
        "the header Origin is ignored", "studio/application.py",
        'origin, site = headers.get("origin"), headers', 'origin, site = None, headers',
        "test_studio_application.py::test_a_page_from_elsewhere_is_refused",
    ),
    Fault(
        "the optimizer is not restored", "lab/training/loop.py",
        '    optimizer.load_state_dict({"state": moments,', '    dict({"state": moments,',
        "test_durability.py::test_a_run_resumes_from_any_crash_and_ends_with_the_same_bits",
    ),
    Fault(
        "temporary files are left in subfolders", "lab/training/run_directory.py",
        'self.path.rglob(".*.tmp")', 'self.path.glob(".*.tmp")',
        "test_hostile.py::test_temporary_files_of_a_killed_run_are_removed_at_resume",
    ),
    Fault(
        "NaN in weights is accepted", "pretrained.py",
        "if not bool(tensor.isfinite().all()) and", "if False and",
        "test_hostile.py::test_weights_that_are_not_finite_are_refused_by_name",
    ),
    Fault(
        "names are not checked", "files.py",
        "    if len(name) > MAX_NAME_LENGTH or not NAME.fullmatch(name):\n", "    if False:\n",
        "test_hostile.py::test_a_run_is_never_written_outside_of_its_folder",
    ),
    Fault(
        "nothing is escaped", "terminal.py",
        'return CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)', "return text",
        "test_hostile.py::test_markup_and_escape_sequences_are_shown_as_they_are_written",
    ),
    Fault(
        "rich markup is read", "terminal.py", "markup=False, emoji=False", "markup=True, emoji=False",
        "test_hostile.py::test_names_of_columns_and_sets_are_shown_as_they_are_written",
    ),
    Fault(
        "the size of a network is not compared with its weights", "pretrained.py",
        "check_size(module.construct, 2 * len(weights) + 100, 2 * num_weights + 1_000_000, limit=limit)", "pass",
        "test_hostile.py::test_a_network_larger_than_its_weights_is_refused_before_it_is_built[dim]",
    ),
    Fault(
        "links are not checked", "lab/training/run_directory.py", "        check_no_links(path)\n", "",
        "test_hostile.py::test_a_link_in_a_run_directory_is_refused_and_what_it_leads_to_is_not_touched",
    ),
    Fault(
        "a pipe or a device is read", "files.py", "    if not stat.S_ISREG(path.stat().st_mode):\n", "    if False:\n",
        "test_hostile_tables.py::test_a_device_in_the_place_of_a_file_is_not_read",
    ),
    Fault(
        "pixels are not counted", "lab/data/folders.py",
        "            if image.width * image.height > MAX_PIXELS:\n", "            if False:\n",
        "test_hostile.py::test_an_image_is_refused_by_its_number_of_pixels_before_it_is_decoded",
    ),
    Fault(
        "slow clients are kept", "studio/server.py",
        "        self.request_deadline = self.loop.call_later(REQUEST_SECONDS, transport.abort)\n",
        "        self.request_deadline = self.loop.call_later(REQUEST_SECONDS, print)\n",
        "test_studio.py::test_a_client_that_does_not_send_its_request_is_disconnected_and_others_are_served",
    ),
    Fault(
        "a dead worker is not replaced", "studio/background.py",
        "if self.thread is None or not self.thread.is_alive():", "if self.thread is None:",
        "test_studio_background.py::test_a_worker_that_dies_is_replaced_and_its_job_gets_an_error",
    ),
    Fault(
        "a decision tree may lead to a node that does not exist", "estimators/saved_members.py",
        "((child > index) & (child < len(nodes)))", "(child > index)",
        "test_hostile.py::test_members_that_do_not_fit_together_are_one_clear_error",
    ),
    Fault(
        "a loaded estimator is not tried", "estimators/base.py",
        "        check_usable(estimator, Path(directory), lambda: estimator._predict_trial(elements))\n", "",
        "test_hostile.py::test_an_estimator_whose_values_do_not_fit_together_is_refused_when_it_is_loaded",
    ),
    Fault(
        "every step of a network is drawn", "figures.py", "    if count <= most:\n", "    if True:\n",
        "test_hostile.py::test_a_network_of_many_steps_is_drawn_with_a_bounded_number_of_panels",
    ),
    Fault(
        "what an NPY claims is not compared with its size", "array_files.py",
        "    if offset + num_bytes > size:\n", "    if False:\n",
        "test_hostile_tables.py::test_an_npy_that_claims_what_it_does_not_have_is_refused_by_all_readers",
    ),
    Fault(
        "columns of a Parquet file may share a name", "array_files.py",
        "            if count > 1:\n", "            if False:\n",
        "test_hostile_tables.py::test_parquet_without_its_own_name_for_every_column_is_refused_by_all_readers",
    ),
    Fault(
        "a header of safetensors is not compared with its file", "array_files.py",
        "if not start <= stop <= num_bytes or (expected and stop - start != expected):", "if False:",
        "test_hostile_tables.py::test_a_safetensors_header_that_does_not_fit_its_file_is_refused",
    ),
    Fault(
        "JSON of any depth is read", "files.py", "            return content\n    raise ValueError(too_deep)\n",
        "            return content\n    return content\n",
        "test_hostile.py::test_deeply_nested_json_is_one_clear_error",
    ),
    Fault(
        "a network may have any number of steps", "pretrained.py",
        "if isinstance(value, int) and value > MAX_STEPS and", "if False and",
        "test_hostile.py::test_a_description_of_a_network_with_too_many_steps_is_refused",
    ),
    Fault(
        "a broken run stops the report", "lab/reports/records.py",
        "            except (OSError, ValueError) as error:\n                on_skip(",
        "            except OSError as error:\n                on_skip(",
        "test_reports.py::test_a_damaged_or_foreign_run_is_skipped_in_one_line_with_its_name_and_the_reason",
    ),
    Fault(
        "the studio takes bodies of any size", "studio/application.py",
        "        if int(length) > MAX_BODY_BYTES:\n", "        if False:\n",
        "test_studio_application.py::test_a_large_body_is_refused_and_so_is_one_that_does_not_say_its_length",
    ),
    Fault(
        "the studio takes bodies of unknown length", "studio/application.py",
        '        if "transfer-encoding" in headers:\n', "        if False:\n",
        "test_studio_application.py::test_a_large_body_is_refused_and_so_is_one_that_does_not_say_its_length",
    ),
    Fault(
        "the header Host is ignored", "studio/application.py",
        "        if host.lower() in self.hosts:\n", "        if True:\n",
        "test_studio_application.py::test_a_foreign_host_is_refused",
    ),
    Fault(
        "a chunk has any number of columns", "large/large_set.py",
        "max(MAX_VALUES_PER_CHUNK // (source.width or 1), 1)", "2**30",
        "test_hostile_tables.py::test_a_source_of_many_columns_is_read_in_chunks_of_bounded_size",
    ),
    Fault(
        "a command raises KeyError for a column that does not exist", "tables/table.py",
        'raise ValueError(f"{self.path} has no column {name!r}; its columns are {list_names(self.columns)}.")',
        "raise KeyError(name)",
        "test_hostile.py::test_mutated_files_are_accepted_or_clearly_refused[tables through cluster, odd, classify]",
    ),
    Fault(
        "the fuzzer does not notice a traceback that is printed", "../tests/fuzz/runner.py",
        "            elif TRACEBACK in text:\n", "            elif False:\n",
        "test_hostile.py::test_a_defect_of_a_command_is_counted_as_a_traceback",
    ),
]  # fmt: skip


def run_test(folder: Path, test: str) -> int:
    """Return the exit code of pytest: 0 if the test passes, 1 if it fails."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-x", "-q", "-p", "no:cacheprovider", f"tests/{test}"]
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, preexec_fn=limit).returncode


def limit() -> None:
    """Limit memory and processor time: a fault may let a test ask for any amount of both."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.planted_faults", description=__doc__)
    parser.add_argument("--only", default="", help="a part of the name of the faults to plant")
    parser.add_argument("--first", type=int, default=0, help="number of the first fault to plant")
    options = parser.parse_args()
    survived, passes = False, dict[str, int]()
    print("| fault | test | without the fault | with it |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place)
        for name in ("picaset", "tests", "pyproject.toml"):
            source = ROOT / name
            shutil.copytree(source, copy / name) if source.is_dir() else shutil.copy(source, copy / name)
        for fault in FAULTS[options.first :]:
            if options.only not in fault.name:
                continue
            path = copy / "picaset" / fault.file
            source = path.read_text()
            if fault.test not in passes:
                passes[fault.test] = run_test(copy, fault.test)
            before = passes[fault.test]
            path.write_text(source.replace(fault.old, fault.new))
            after = run_test(copy, fault.test)
            path.write_text(source)
            survived |= before != 0 or after == 0
            file, _, test = fault.test.partition("::")
            words = {0: "passes", 1: "fails", -signal.SIGSEGV: "crashes", -signal.SIGXCPU: "does not end"}
            print(
                f"| {fault.name} | `{file}`: `{test}` | {words.get(before, before)} | {words.get(after, after)} |",
                flush=True,
            )
    return int(survived)


if __name__ == "__main__":
    sys.exit(main())
