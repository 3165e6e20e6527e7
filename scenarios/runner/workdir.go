package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed"
)

// contained reports whether a node has the files of an image and not the host's. Routers, which are no nodes
// of the plan, have the host's files.
func contained(p *plan.Plan, node string) bool {
	n := p.Node(node)
	return n != nil && (n.Container != nil || n.Runtime == spec.CNI)
}

// workdir returns the directory in which a command of a step runs in a node. has is the entry that the
// directory must have there, as in testbed.Cmd. file is the path of the scenario file. given is the value of
// the step's key.
func workdir(p *plan.Plan, file, node, given string) (dir, has string) {
	switch {
	case given == "" && (contained(p, node) || file == ""):
		return "", ""
	case given == "":
		// The file shows that the node sees the host's directory and not one of its own with the same name.
		return filepath.Dir(file), filepath.Base(file)
	}
	return spec.BesideFile(file, given), "."
}

// start starts a command of a step in the step's directory. If the node does not see the file's directory,
// the command runs in the root directory, and the run prints a note for the node.
func (s *session) start(cmd *testbed.Cmd, node, given string) error {
	cmd.Dir, cmd.DirHas = workdir(s.plan, s.path, node, given)
	err := cmd.Start()
	if !errors.Is(err, testbed.ErrNoFolder) {
		return err
	}
	if given != "" {
		return fmt.Errorf("workdir %s: %w (%s)", given, err, ownFiles(s.plan.Node(node)))
	}
	folder := cmd.Dir
	s.noteNotSeen(node, folder, "its commands")
	cmd.Dir, cmd.DirHas = "", ""
	if err = cmd.Start(); errors.Is(err, testbed.ErrNotFound) {
		err = fmt.Errorf("%w; the command ran in /, because %s does not see %s", err, node, folder)
	}
	return err
}

// noteNotSeen prints once for a node that commands or programs run in the root directory.
func (s *session) noteNotSeen(node, folder, whose string) {
	if _, told := s.notSeen.LoadOrStore(node+": "+whose, true); !told {
		s.progress(Update{Line: fmt.Sprintf("note: %s does not see %s, so %s run in / (%s)", node, folder,
			whose, ownFiles(s.plan.Node(node)))})
	}
}

// folderOf returns the directory of the file if all nodes of a stack see it, else "". It is for launchers,
// which start programs in all nodes. If a node does not see the directory, folderOf prints a note and returns
// the reason, which belongs to the error of a missing program.
func (s *session) folderOf(ctx context.Context, stack string, nodes []string) (folder, hidden string,
	err error) {
	for _, node := range nodes {
		cmd := s.testbed.Node(node).Command(ctx, "true")
		if cmd.Dir, cmd.DirHas = workdir(s.plan, s.path, node, ""); cmd.Dir == "" {
			return "", "", nil
		}
		folder = cmd.Dir
		err := cmd.Run()
		switch {
		case errors.Is(err, testbed.ErrNoFolder):
			s.noteNotSeen(node, folder, "the programs of stack "+stack)
			return "", fmt.Sprintf("%s does not see %s", node, folder), nil
		case ctx.Err() != nil:
			return "", "", context.Cause(ctx)
		case err != nil:
			return "", "", fmt.Errorf("look for %s in %s: %w", folder, node, err)
		}
	}
	return folder, "", nil
}

// ownFiles names the directories that a node does not share with the host. n is nil for a router.
func ownFiles(n *plan.Node) string {
	switch {
	case n != nil && n.Container != nil:
		return "a container has the files of its image"
	case n != nil && n.Runtime == spec.VM:
		return "a virtual machine does not see the host's /tmp, /var/tmp, /run, /home and /root"
	}
	return "a node has its own /tmp, /run and /dev/shm"
}

// workdir checks the directory of an exec step.
func (p *preparation) workdir(f stepFrame, e *spec.Exec) {
	if e.Workdir == "" || filepath.IsAbs(e.Workdir) {
		return
	}
	names := p.o.Plan.ExecNodes(e.Nodes)
	if at := slices.IndexFunc(names, func(n string) bool { return contained(p.o.Plan, n) }); at >= 0 {
		p.wrong(ErrJob, f.at+".workdir", fmt.Errorf("%s is a container, in which the directory %s is "+
			"relative to nothing: want an absolute path of the container", names[at], e.Workdir))
	}
}

// missingPrograms returns a warning for each directory of a step and each program with a slash in its name
// that the host lacks. A step before may make it.
func missingPrograms(o *Options) (warnings spec.Problems) {
	file := absolute(o.Path)
	for i, step := range o.File.Steps {
		e, kind, names := step.Exec, "exec", []string{}
		switch {
		case e != nil:
			names = o.Plan.ExecNodes(e.Nodes)
		case step.Stack != nil:
			e, kind = &spec.Exec{Command: step.Stack.Command}, "stack"
			for _, n := range stackNodes(o.Plan, step.Stack) {
				names = append(names, n.Name)
			}
		}
		if e == nil || len(e.Command) == 0 {
			continue
		}
		warn := func(key, what, remedy string) {
			at := fmt.Sprintf("steps[%d].%s.%s", i, kind, key)
			warnings = append(warnings, o.File.Source.Problem(at, what, remedy))
		}
		names = slices.DeleteFunc(names, func(n string) bool { return contained(o.Plan, n) })
		if len(names) == 0 {
			continue
		}
		dir, _ := workdir(o.Plan, file, names[0], e.Workdir)
		program := e.Command[0]
		named := strings.Contains(program, "/")
		relative := named && !filepath.IsAbs(program)
		if relative {
			program = filepath.Join(dir, program)
		}
		switch {
		case e.Workdir != "" && !ofNode(dir) && !isFolder(dir):
			warn("workdir", dir+" does not exist, or is not a directory", "make it before the step")
		case e.Workdir == "" && relative && ofNode(dir):
			warn("command[0]", fmt.Sprintf("nodes do not see %s, so they look for %s in / (%s)", dir,
				e.Command[0], ownFiles(nil)), "keep this file and its programs elsewhere")
		case named && !ofNode(program) && !isProgram(program):
			warn("command[0]", program+" does not exist, or is not an executable file",
				"make it before the step")
		}
	}
	return warnings
}

// ofNode reports whether every node has files of its own at a path.
func ofNode(path string) bool {
	own := []string{"/tmp/", "/run/", "/dev/shm/", "/proc/", "/sys/"}
	return slices.ContainsFunc(own, func(p string) bool { return strings.HasPrefix(path+"/", p) })
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir() && info.Mode()&0o111 != 0
}

// absolute returns a path that does not depend on the working directory, or "" if it is the path of no file.
func absolute(path string) string {
	whole, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	if info, err := os.Stat(whole); err != nil || info.IsDir() {
		return ""
	}
	return whole
}
