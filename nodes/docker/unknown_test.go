package docker

import (
	"errors"
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
)

// TestUnknownImages has the answers of Docker 28, Podman 4 and registries to images that do not exist.
// Other answers are of registries that cannot be asked, or that lack the architecture of the host.
func TestUnknownImages(t *testing.T) {
	for _, text := range []string{
		"manifest for alpine:no-such not found: manifest unknown: manifest unknown",
		"pull access denied for nobody/nothing, repository does not exist or may require 'docker login'",
		"errors: denied: requested access to the resource is denied",
		"name unknown: The repository with name 'x' does not exist in the registry with id '1'",
	} {
		if !notInRegistry(errors.New(text)) {
			t.Errorf("%q is not unknown", text)
		}
	}
	for _, text := range []string{
		`Get "https://registry-1.docker.io/v2/": dial tcp: lookup registry-1.docker.io: no such host`,
		`Get "http://127.0.0.1:1/v2/": dial tcp 127.0.0.1:1: connect: connection refused`,
		"toomanyrequests: You have reached your pull rate limit",
		"net/http: TLS handshake timeout",
		"write /var/lib/docker/tmp/x: no space left on device",
		"no matching manifest for linux/arm64/v8 in the manifest list entries",
	} {
		if notInRegistry(errors.New(text)) {
			t.Errorf("%q is unknown", text)
		}
	}
	if !notInRegistry(errdefs.ErrNotFound) {
		t.Error("status 404 is not unknown")
	}
	if err := fmt.Errorf("no match for platform in manifest: %w", errdefs.ErrNotFound); notInRegistry(err) {
		t.Errorf("%q is unknown: it is about this host's architecture", err)
	}
}
