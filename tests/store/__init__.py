"""What every store has to do: the same tests over a folder, moto and a real Ceph RGW."""
