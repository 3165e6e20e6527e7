package stacks

import (
	"regexp"
	"strings"

	"railbed/workloads/stacks/rsh"
)

// openMPI is Open MPI with its own runtime (mpirun, orted). Its daemons and ranks
// speak over the nodes' NICs, which a node's environment names.
var openMPI = adapter{
	kind: "openmpi",
	tools: []tool{
		{names: []string{"mpirun.openmpi", "mpirun"}, debian: "openmpi-bin"},
		{names: []string{"mpicc.openmpi", "mpicc"}, debian: "libopenmpi-dev"},
		{names: []string{"gcc"}, debian: "gcc"},
	},
	version: []string{"mpirun.openmpi", "--version"}, says: `\((?:Open MPI|OpenRTE)\) `, least: "4.0",
	metric: mpiMetric, figures: mpiFigures,
	run: mpi{
		compiler: "mpicc.openmpi", local: "OMPI_COMM_WORLD_LOCAL_RANK",
		launch: func(_ *run, perNode []string) []string {
			// Nodes may have fewer cores than ranks, and every one is root of its own.
			// A rank that waits yields its core: all nodes share the host's.
			return []string{
				"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--map-by", "slot",
				"--mca", "plm_rsh_agent", rsh.Agent, "--mca", "mpi_yield_when_idle", "1", "--host", strings.Join(perNode, ","),
			}
		},
		died: openMPIDied,
	}.run,
}

// openMPIDied is what mpirun says of a rank that a signal ended, and of one that ended
// with another exit code than 0.
var openMPIDied = []*regexp.Regexp{
	regexp.MustCompile(`process rank (?P<rank>\d+) with PID \d+ on node \S+ exited on signal`),
	regexp.MustCompile(`Process name: \[\[\d+,\d+\],(?P<rank>\d+)\]`),
}
