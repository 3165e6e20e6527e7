package testbed

import (
	"context"
	"io"
	"net/http"
	"net/url"
)

// Log writes the output of the entry point of a node with runtime: docker, as docker logs does.
func (n *Node) Log(ctx context.Context, to io.Writer) error {
	ctx, cancel := n.testbed.limited(ctx)
	defer cancel()
	response, err := n.testbed.do(ctx, http.MethodGet, "/v1/nodes/"+url.PathEscape(n.name)+"/log", nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(to, response.Body)
	return err
}
