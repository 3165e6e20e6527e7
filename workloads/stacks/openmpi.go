package stacks

import (
	"regexp"
	"strings"

	"railbed/workloads/stacks/rsh"
)

// openMPI is Open MPI with its own runtime (mpirun, orted). Its daemons and ranks communicate over
// the nodes' NICs, which a node's environment names.
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
			// Nodes may have fewer cores than ranks, and every rank runs as root in its node. A
			// waiting rank yields its core, because all nodes share the host's cores.
			return []string{
				"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--map-by",
				"slot",
				"--mca", "state_base_verbose", "1", "--mca", "plm_rsh_agent", rsh.Agent, "--mca",
				"mpi_yield_when_idle", "1", "--host", strings.Join(perNode, ","),
			}
		},
		died:   openMPIDied,
		states: openMPIStates,
	}.run,
}

// openMPIDied matches mpirun's messages about a rank that a signal ended, and about a rank with an
// exit code other than 0. If a rank ends before all ranks run, mpirun names no rank. Then only the
// states that it logs with state_base_verbose show it.
var openMPIDied = []*regexp.Regexp{
	regexp.MustCompile(`process rank (?P<rank>\d+) with PID \d+ on node \S+ exited on signal`),
	regexp.MustCompile(`Process name: \[\[\d+,\d+\],(?P<rank>\d+)\]`),
	regexp.MustCompile(`ACTIVATE PROC \[\[\d+,[1-9]\d*\],(?P<rank>\d+)\] STATE (?:ABORTED|CALLED ABORT|TERMINATED WITHOUT|EXITED WITH NON-ZERO|FAILED)`),
}

// openMPIStates matches the states of jobs and processes that mpirun and its daemons log.
var openMPIStates = regexp.MustCompile(`^\[\S+:\d+\] \[\[\d+,\d+\],\d+\] ACTIVATE (?:JOB|PROC) `)
