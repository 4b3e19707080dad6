"""`bascule desktop-host`: its own process, which sees and acts on real windows and speaks the desktop contract.

The contract's rules (`service`, `acting`, `tokens`, `elements`) know no toolkit; `ports` is what they ask of a desktop,
`linux` answers it with AT-SPI and X11. Agents never reach this process: they come through the daemon, which asks.
May import `desktop.protocol`, `transports`, `kernel.evidence`, `wire` and `foundation`; never the gate, the
policy or the stores.
"""
