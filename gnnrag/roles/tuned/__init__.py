"""Roles done by models that were trained here. Importing a module imports torch; the registry does so on first use."""
