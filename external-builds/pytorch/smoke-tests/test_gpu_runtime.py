"""What is there on a GPU alone: streams, events, the caching allocator, and graphs of kernels."""

import gc

import torch

BLOCK = 64 << 20  # bytes: more than the allocator serves out of a shared segment


def block() -> torch.Tensor:
    return torch.ones(BLOCK // 4, device="cuda")


def test_streams_wait_for_each_other(gpu: torch.device) -> None:
    side, x = torch.cuda.Stream(), torch.zeros(1 << 20, device=gpu)
    for _ in range(20):  # enough work that a stream which does not wait reads a value from before
        x += 1
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() == side
        y = x * 2
        done = side.record_event()
    assert torch.cuda.current_stream() != side
    torch.cuda.current_stream().wait_event(done)
    x.record_stream(side)
    assert (y + x == 60).all()


def test_an_event_is_done_when_the_work_before_it_is(gpu: torch.device) -> None:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    x = torch.full((2048, 2048), 1 / 2048, device=gpu)
    begin.record()
    for _ in range(10):
        x = x @ x
    end.record()
    end.synchronize()
    assert begin.query()
    assert end.query()
    assert 0 < begin.elapsed_time(end) < 60_000  # milliseconds
    torch.testing.assert_close(x, torch.full_like(x, 1 / 2048), rtol=1e-2, atol=0)


def test_copies_from_pinned_memory_need_no_waiting(real_gpu: torch.device) -> None:
    source = torch.arange(1 << 20, dtype=torch.int32).pin_memory()
    assert source.is_pinned()
    back = source.to(real_gpu, non_blocking=True).add_(1).to("cpu", non_blocking=True)
    torch.cuda.synchronize()
    assert torch.equal(back, source + 1)


def test_the_allocator_counts_what_tensors_hold(gpu: torch.device) -> None:
    gc.collect()  # else tensors that earlier tests left in circles may go meanwhile
    torch.cuda.synchronize(gpu)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    held = block()
    assert torch.cuda.memory_allocated() - before == BLOCK
    assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()
    assert torch.cuda.memory_stats()["allocated_bytes.all.current"] == before + BLOCK
    del held
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.max_memory_allocated() == before + BLOCK
    assert torch.cuda.memory_stats()["num_ooms"] == 0


def test_memory_that_nothing_holds_goes_back_to_the_driver(real_gpu: torch.device) -> None:
    kept, gone = block(), block()
    del gone
    torch.cuda.synchronize(real_gpu)
    reserved = torch.cuda.memory_reserved()
    torch.cuda.empty_cache()
    assert reserved - torch.cuda.memory_reserved() >= BLOCK
    assert (kept == 1).all()
    free, total = torch.cuda.mem_get_info()
    assert 0 < free < total


def test_a_graph_computes_again_on_other_values(real_gpu: torch.device) -> None:
    x, weight = torch.zeros(64, 64, device=real_gpu), torch.eye(64, device=real_gpu) * 3
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # libraries make their handles and workspaces before a capture
        for _ in range(3):
            _ = (x @ weight + 1).relu()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = (x @ weight + 1).relu()
    for value in (2.0, -4.0):
        x.fill_(value)
        graph.replay()
        assert (y == max(value * 3 + 1, 0)).all()
