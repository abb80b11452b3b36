"""The frozen networks: their shapes, their forms, the export, and the demo at its small size."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples.test_demos import check_picture
from onnx.reference import ReferenceEvaluator

#: Weights in millions, of kernels alone: those of the published networks.
SIZES = {"resnet50": 25.503, "mobilenet": 4.209, "vgg19": 143.652, "yolov8n": 3.146}


@pytest.fixture
def models(examples, monkeypatch):
    """(networks, graph, export), with random patterns."""
    monkeypatch.delenv("JAXSPARSE_DATA", raising=False)
    return [importlib.import_module(f"models.pruned.{n}") for n in ("networks", "graph", "export")]


def inputs_of(graph, batch=1):
    rng = np.random.default_rng(0)
    return {k: rng.standard_normal((batch, *s), np.float32) for k, s in graph.inputs.items()}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_the_published_ones(models, monkeypatch, name):
    networks, _, _ = models

    def drawn(self, shape, *rest):
        return np.broadcast_to(np.float32(0), shape)

    monkeypatch.setattr(networks.Builder, "drawn", drawn)
    monkeypatch.setattr(networks, "folded", lambda kernel, *rest: (kernel, np.zeros(1)))
    graph = networks.networks(0.9, False, False)[name]()
    found = sum(layer.kernel.size for layer in graph.layers.values())
    assert found / 1e6 == pytest.approx(SIZES[name], abs=1e-3)


@pytest.mark.parametrize(
    "name", ["resnet50", "mobilenet", "vgg19", "yolov8n", "encoder", "decoder"]
)
def test_the_export_is_the_same_network(models, name):
    """onnx's own evaluation of the exported model, on two samples."""
    networks, graphs, export = models
    small = {
        "resnet50": lambda: networks.resnet50(0.9, 32, ((1, 16, 1), (1, 16, 2))),
        "mobilenet": lambda: networks.mobilenet(0.9, 32, networks.PAIRS[:2]),
        "vgg19": lambda: networks.vgg19(0.9, 8, ((1, 8), (1, 16)), 32),
        "yolov8n": lambda: networks.yolov8n(0.9, 32),
        "encoder": lambda: networks.transformer(0.9, 5, 128, 1),
        "decoder": lambda: networks.transformer(0.9, 1, 128, 1, 6),
    }
    graph = small[name]()
    given = inputs_of(graph, 2)
    dense = {k: (layer.kernel, layer.bias) for k, layer in graph.layers.items()}
    want = graphs.evaluate(graph, dense, jax.tree.map(jnp.asarray, given))
    turned = {k: export.channels_first(x) for k, x in given.items()}
    got = ReferenceEvaluator(export.export(graph, 2)).run(None, turned)
    demo = importlib.import_module("pruned_networks")
    bound = 1e-5 if jax.default_backend() == "cpu" else 2e-2
    assert demo.difference(got, [np.asarray(y) for y in want], True) < bound


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("side", [7, 8])
def test_shifted_images(models, stride, side):
    """Depthwise convolutions and pooling as XLA has them."""
    _, graphs, _ = models
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((2, side, side, 4)), jnp.float32)
    kernel = jnp.asarray(rng.standard_normal((3, 3, 1, 4)), jnp.float32)
    static = {"stride": stride, "padding": ((1, 1), (1, 1)), "groups": 4, "activation": "relu"}
    node = graphs.Node("conv", ("x",), "y", static)
    forms = [form(node, x, kernel, jnp.ones(4)) for form in (graphs.xla, graphs.shifted)]
    np.testing.assert_allclose(*forms, atol=1e-5 if jax.default_backend() == "cpu" else 2e-2)
    for window, pad in ((3, 1), (2, 0)):
        static = {"window": window, "stride": stride, "padding": ((pad, pad), (pad, pad))}
        sides = (1, window, window, 1), (1, stride, stride, 1)
        pads = ((0, 0), *static["padding"], (0, 0))
        want = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, *sides, pads)
        np.testing.assert_array_equal(graphs.max_pool(static, x), want)


def test_batch_normalisation_is_folded(models):
    networks, _, _ = models
    rng = np.random.default_rng(0)
    kernel, x = rng.standard_normal((1, 1, 3, 4)), rng.standard_normal((5, 3))
    scale, shift, mean, variance = rng.random((4, 4)) + 0.5
    folded, bias = networks.folded(kernel, scale, shift, mean, variance)
    want = (x @ kernel[0, 0] - mean) / np.sqrt(variance + networks.EPSILON) * scale + shift
    np.testing.assert_allclose(x @ folded[0, 0] + bias, want)


def test_patterns_of_the_collection(models, monkeypatch, tmp_path):
    """Rows are outputs; columns follow the kernel's axes. A pattern of another size is refused."""
    networks, _, _ = models
    kept = np.random.default_rng(0).random((64, 147)) < 0.2
    parts = {"shape": kept.shape, "indices": np.nonzero(kept)[1]}
    parts["indptr"] = np.concatenate([[0], np.cumsum(kept.sum(1))])
    (tmp_path / "dlmc").mkdir()
    file = tmp_path / "dlmc" / "rn50_magnitude_0.8.npz"
    np.savez(file, **{f"initial_conv/{k}": v for k, v in parts.items()})
    monkeypatch.setenv("JAXSPARSE_DATA", str(tmp_path))
    graph = networks.resnet50(0.8, 32, ())
    kernel = graph.layers["initial_conv"].kernel
    np.testing.assert_array_equal(kernel != 0, kept.T.reshape(7, 7, 3, 64))
    parts["shape"] = (64, 146)
    np.savez(file, **{f"initial_conv/{k}": v for k, v in parts.items()})
    with pytest.raises(ValueError, match="initial_conv is 64x146"):
        networks.resnet50(0.8, 32, ())


def test_the_demo(models, tmp_path, capsys):
    demo = importlib.import_module("pruned_networks")
    names = ["resnet50", "mobilenet", "decoder"]
    result = demo.main(["--quick", "--networks", *names, "--out", str(tmp_path)])
    assert [row.network for row in result.rows] == [
        *("ResNet-50", "MobileNetV1"),
        "decoder after 32 tokens",
    ]
    for row in result.rows:
        assert {demo.XLA, demo.OURS} <= set(row.times)
        assert min(row.times.values()) > 0
        assert row.error <= demo.TOLERANCE["float32"] or jax.default_backend() == "gpu"
        assert 0.08 < row.kept / row.weights < 0.13
        assert min(row.memory.values()) > 0
    assert result.rows[0].memory[demo.OURS] < result.rows[0].memory[demo.XLA]
    check_picture(result.picture)
    assert "greatest difference" in capsys.readouterr().out


def test_time_lines(models, tmp_path, capsys):
    """Every node is in a row, and the rows add up to the whole."""
    networks, _, _ = models
    demo = importlib.import_module("pruned_networks")
    line = importlib.import_module("models.pruned.timeline")
    options = ["--quick", "--networks", "decoder", "--timeline", "--out", str(tmp_path)]
    row = demo.main(options).rows[0]
    graph = networks.networks(0.9, True, False)["decoder"]()
    kinds = {span.kind: span.nodes for span in row.spans}
    assert kinds == {"norm": 3, f"{line.LAYER}matmul": 6, "attention": 1, "add": 2}
    assert sum(kinds.values()) == len(graph.nodes)
    for span in row.spans:
        assert set(span.times) == {demo.XLA, demo.OURS}
        assert min(span.times.values()) > 0
        if not span.kind.startswith(line.LAYER):  # one operator serves both
            assert span.times[demo.XLA] == span.times[demo.OURS]
    rows = line.cells(row.spans, row.times)
    parts, whole = [float(cells[-1]) for cells in rows[:-1]], float(rows[-1][-1])
    assert sum(parts) == pytest.approx(whole, abs=1e-3 * len(rows))
    assert line.REMAINDER in capsys.readouterr().out


def test_attention_of_one_token_after_a_cache(models):
    """As the attention of a whole sequence has it for its last token."""
    _, graphs, _ = models
    rng = np.random.default_rng(0)
    q, k, v = (jnp.asarray(rng.standard_normal((2, 7, 24)), jnp.float32) for _ in range(3))
    given = q[:, -1:], k[:, -1:], v[:, -1:], k[:, :-1], v[:, :-1]
    want = graphs.attention({"heads": 3}, q, k, v)[:, -1:]
    bound = 1e-5 if jax.default_backend() == "cpu" else 2e-2
    np.testing.assert_allclose(graphs.attention({"heads": 3}, *given), want, atol=bound)


def test_constants_are_counted(models):
    demo = importlib.import_module("pruned_networks")
    table = np.arange(3000, dtype=np.float32)
    run = jax.jit(lambda x: x @ jnp.asarray(table).reshape(3, 1000))
    text = run.lower(jnp.zeros((2, 3))).compile().as_text()
    assert demo.constant_bytes(text) == pytest.approx(12000, abs=64)
