"""What people type about the mesh: `bascule mesh`, `bascule join`, `bascule node`."""
