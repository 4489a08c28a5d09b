"""Submitted jobs: records, logs, states, queues, cancel."""
