/* Prints size and offsets of what `fields.h` lists; the test writes that file. */
#include <infiniband/verbs.h>

#include <stddef.h>
#include <stdio.h>

#define S(type) printf(#type " %zu\n", sizeof(struct type));
#define F(type, field) printf(#type "." #field " %zu\n", offsetof(struct type, field));

int main(void)
{
#include "fields.h"
	return 0;
}
