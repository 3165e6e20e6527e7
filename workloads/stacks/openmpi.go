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

// openMPIDied is what mpirun says of a rank that a signal ended, and of one that ended
// with another exit code than 0. Where that is before all of them run it says of none,
// but for the states that it notes with state_base_verbose.
var openMPIDied = []*regexp.Regexp{
	regexp.MustCompile(`process rank (?P<rank>\d+) with PID \d+ on node \S+ exited on signal`),
	regexp.MustCompile(`Process name: \[\[\d+,\d+\],(?P<rank>\d+)\]`),
	regexp.MustCompile(`ACTIVATE PROC \[\[\d+,[1-9]\d*\],(?P<rank>\d+)\] STATE (?:ABORTED|CALLED ABORT|TERMINATED WITHOUT|EXITED WITH NON-ZERO|FAILED)`),
}

// openMPIStates are the states of jobs and processes, as mpirun and its daemons note them.
var openMPIStates = regexp.MustCompile(`^\[\S+:\d+\] \[\[\d+,\d+\],\d+\] ACTIVATE (?:JOB|PROC) `)
