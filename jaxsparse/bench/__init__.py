"""Side by side timings: `jaxsparse bench`. How they are taken: docs/measuring.md."""
