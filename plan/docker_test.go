package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"railbed/plan/spec"
)

var wrongContainerFiles = []wrongFile{
	{"nothing in the container", leafSpineFile("nodes:", "  h0: {runtime: docker}"), []string{
		`f:6:17: the container of node h0 has no image, build or rootfs; add image: NAME, build: FOLDER or rootfs: ARCHIVE`}},
	{"a network for what is not built",
		leafSpineFile("nodes:", "  default: {runtime: docker, build-network: host}", "  h0: {build: .}",
			"  h[1-3]: {image: a}"), []string{
			`f:6:45: node h1 has build-network without build; add build: FOLDER, or remove build-network`}},
	{"an image without a container", leafSpineFile("nodes:", "  h1: {image: a}"), []string{
		`f:6:15: image is only for containers, and node h1 is no container; add runtime: docker, or remove image`}},
	{"RDMA in a container", leafSpineFile("nodes:", "  h1: {runtime: docker, image: a, rdma: rxe}"), []string{
		`f:6:41: node h1 is a container, and containers have no RDMA devices; want runtime: vm or netns`}},
}

// TestContainers checks the host features that containers need, and overriding. The contents of a
// container and the programs that it runs are replaced as a whole.
func TestContainers(t *testing.T) {
	p, err := compileText(leafSpineFile("nodes:",
		`  "h[1-2]": {runtime: docker, image: a, entrypoint: [x], command: [y], binds: ["b:/b"], pull: never}`,
		`  h2: {rootfs: c.tar, command: [z], ulimits: {nofile: 3}}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Requirement{{dockerEngine, "node h1 is a container", "f:6:23", false}},
		p.Requires); diff != "" {
		t.Error(diff)
	}
	for i, want := range []*spec.Container{nil,
		{Image: "a", Pull: "never", Entrypoint: []string{"x"}, Command: []string{"y"},
			Binds: []string{"b:/b"}},
		{RootFS: "c.tar", Pull: "never", Command: []string{"z"}, Binds: []string{"b:/b"},
			Ulimits: map[string]string{"nofile": "3"}},
	} {
		if diff := cmp.Diff(want, p.Nodes[i].Container); diff != "" {
			t.Errorf("%s: %s", p.Nodes[i].Name, diff)
		}
	}
}
