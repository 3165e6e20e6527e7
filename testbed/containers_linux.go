package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"railbed/fabric"
	"railbed/internal/descriptors"
	"railbed/internal/frame"
	"railbed/nodes/cni"
)

// AttachContainer implements cni.Testbed.
func (t *Testbed) AttachContainer(ctx context.Context, r cni.Request,
	make func(*fabric.Attachment) (*fabric.ForeignNIC, error)) (*fabric.Attachment, error) {
	conn, first, err := t.upgradeFor(ctx, "/v1/containers/attach", r)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	attachment := &fabric.Attachment{}
	if err := json.Unmarshal(first, attachment); err != nil {
		return nil, fmt.Errorf("read answer of %s's supervisor: %w", t.dir.Name, err)
	}
	nic, err := make(attachment)
	if err != nil {
		return nil, err
	}
	socket, err := descriptors.Socket(conn.Conn)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("attach: %w", err), nic.Close())
	}
	conn.SetDeadline(time.Now().Add(answerTimeout))
	if err := nic.Give(socket); err != nil {
		return nil, err
	}
	kind, payload, err := conn.Read()
	switch {
	case err != nil:
		return nil, fmt.Errorf("attach %s: %w", attachment.Node.Name, err)
	case kind == frame.Failure:
		return nil, readFailureFrame(payload)
	}
	return attachment, nil
}

// DetachContainer implements cni.Testbed.
func (t *Testbed) DetachContainer(ctx context.Context, k cni.Key) (had []cni.Attached, err error) {
	err = t.call(ctx, http.MethodPost, "/v1/containers/detach", k, &had)
	return had, err
}

// ContainerPorts implements cni.Testbed.
func (t *Testbed) ContainerPorts(ctx context.Context) (ports []cni.Port, err error) {
	err = t.call(ctx, http.MethodGet, "/v1/containers", nil, &ports)
	return ports, err
}

// CollectContainers implements cni.Testbed.
func (t *Testbed) CollectContainers(ctx context.Context, c cni.Collect) (freed []cni.Attached, err error) {
	err = t.call(ctx, http.MethodPost, "/v1/containers/collect", c, &freed)
	return freed, err
}
