"""What Spark's Python processes have imported is no matter of their garbage collections; what tasks leave behind is."""

import subprocess
import sys
import textwrap


def ran(program: str) -> str:
    """In a process of its own: a frozen one stays so."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_imports_are_left_alone_from_the_second_task_on() -> None:
    results = ran(
        """
        import gc
        from streamhouse.spark.runtime.python_worker import prepare_worker_process
        prepare_worker_process()
        first = gc.get_freeze_count()
        imported = [[] for _ in range(1000)]
        prepare_worker_process()
        print(first > 1000, gc.get_freeze_count() >= first + 1000)
        """
    )
    assert results == "True True"


def test_cycles_of_later_tasks_are_still_collected() -> None:
    results = ran(
        """
        import gc
        from streamhouse.spark.runtime.python_worker import prepare_worker_process
        gc.disable()
        for _ in range(5):
            prepare_worker_process()
            cycle = []
            cycle.append(cycle)
        frozen = gc.get_freeze_count()
        del cycle
        prepare_worker_process()
        print(gc.get_freeze_count() == frozen, gc.collect() >= 3)
        """
    )
    assert results == "True True"


def test_the_memory_of_a_buffer_is_there_for_the_next_one() -> None:
    result = ran(
        """
        import resource
        from streamhouse.spark.runtime.python_worker import prepare_worker_process
        def faults():
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        prepare_worker_process()
        buffer = bytes(bytearray(b"x") * (8 << 20))
        del buffer
        before = faults()
        for _ in range(20):
            buffer = bytearray(b"x") * (8 << 20)
            del buffer
        print(faults() - before < 20 * 1024)
        """
    )
    assert result == "True"
