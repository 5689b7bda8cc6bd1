"""From trees to wheels: environments, plan, cache, runner."""
