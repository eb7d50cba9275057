"""Plans built step by step, by the engine that was asked for, or by the faster one."""
