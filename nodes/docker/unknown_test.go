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

// TestWrongDockerfiles has the answers of Docker 28 and Podman 4 to builds that fail. A command that has a
// network may fail because of the network.
func TestWrongDockerfiles(t *testing.T) {
	const failed = "The command '/bin/sh -c apt-get update' returned a non-zero code: 100"
	for text, network := range map[string]string{
		"dockerfile parse error on line 1: unknown instruction: FORM":                       "default",
		"COPY failed: file not found in build context or excluded by .dockerignore: stat a": "default",
		"ADD failed: no source files were specified":                                        "none",
		"pull access denied for nobody/nothing, repository does not exist":                  "host",
		failed: "none",
	} {
		if !wrongDockerfile(errors.New(text), network) {
			t.Errorf("%q with network %s is no mistake of the Dockerfile", text, network)
		}
	}
	for text, network := range map[string]string{
		failed: "default",
		`Get "https://registry-1.docker.io/v2/": dial tcp: no such host`:       "none",
		"toomanyrequests: You have reached your pull rate limit":               "none",
		"COPY failed: write /var/lib/docker/tmp/x: no space left on device":    "none",
		"no matching manifest for linux/arm64/v8 in the manifest list entries": "none",
	} {
		if wrongDockerfile(errors.New(text), network) {
			t.Errorf("%q with network %s is a mistake of the Dockerfile", text, network)
		}
	}
}
