/* A plugin that is linked with a libibverbs. */
#define C(name) name
#include "../flow.h"

static struct flow flow;

void plugin_open(int index);
void plugin_work(int index);
void plugin_close(int index);

void plugin_open(int index)
{
	(void)index;
	flow_open(&flow);
}

void plugin_work(int index)
{
	flow_work(&flow);
	flow_report_qp(index, &flow);
}

void plugin_close(int index)
{
	(void)index;
	flow_close(&flow);
}
