"""Ring 4: the gateway between things we did not write: the `openai` SDK and curl before it, llama.cpp behind it."""
