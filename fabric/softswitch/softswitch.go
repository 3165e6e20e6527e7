// Package softswitch is the emulated fabric: switches, links and NICs that
// carry the real frames of nodes in one time.
package softswitch
