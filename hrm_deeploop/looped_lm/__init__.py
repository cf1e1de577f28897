"""The looped language model: DeepLoop's first host, as a second workload of the trainer."""
