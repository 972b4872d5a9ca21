"""The templates of the MachineConfigs that every machine of a role has, as OpenShift writes them:
`<role>/<name>/<layer>/{files,units,extensions}/…`; docs/machine-configs.md says how they are read."""
