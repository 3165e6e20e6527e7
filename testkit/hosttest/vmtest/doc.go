// Package vmtest is for tests only. It runs a test again in a virtual machine whose kernel has all
// features, so that features that the host's kernel lacks are tested, too.
//
// The machine is QEMU without KVM: not every host has KVM, and KVM would change measured results.
// So a guest's processor is 10 to 20 times slower than the host's. It has no network. Its first
// process is the test binary itself, and its root file system lies in its own memory. The guest
// sees the host's /usr and the directory of the test, read-only. Of /etc it has the files that
// everybody may read, and nothing else of the host.
package vmtest
