"""The streams that benchmarks run over, here and beside other engines."""

SPAN_MS = 50_000
WINDOW_MS = 5_000
# Name: keys, distribution.
STREAMS = {
    "u1k": ("1K", "uniform"),
    "u1m": ("1M", "uniform"),
    "u10m": ("10M", "uniform"),
    "z11": ("1M", "zipf:1.1"),
    "z15": ("1M", "zipf:1.5"),
    "z20": ("1M", "zipf:2.0"),
    "h80": ("1M", "hot:0.8"),
    "h99": ("1M", "hot:0.99"),
    "drift": ("1M", "drift:0.6/2M"),
}
